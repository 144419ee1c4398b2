"""What the page of the class shows: numbers that are counted student by student.

A class may have tens of thousands, so nothing is kept of a student but what their row shows.
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field

from lessons_grading.grades import ExerciseGrade
from lessons_grading.hidden_cases import NEW_CASE
from lessons_grading.students import UNTOUCHED, Student, in_numbers, score, to_look_at

# no mistake of a bank; the reason may be anything
UNNAMED = ("wrong", "crashed", "exited", "timed-out", "does-not-compile")
MOST_NAMES = 5  # of students, in one row of the class page


@dataclass(frozen=True)
class Row:
    """A student's row, and who is an example of a group."""

    name: str
    page: str
    scores: dict[str, dict[str, int]]  # by lesson
    total: dict[str, int]


@dataclass
class Group:
    """Answers with the same named mistake, or with the same wrong result; or several that fail
    in no other's way, and have nothing but the slug in common.

    way: how they fail, in words.
    alike: how many of them fail in the same way.
    examples: the first few students.
    """

    exercise: str
    slug: str
    way: str
    count: int = 0
    alike: int = 0
    examples: list[Row] = field(default_factory=list)

    @property
    def has_name(self) -> bool:
        return self.slug not in UNNAMED

    @property
    def name(self) -> str:
        """Names a group without a name in commands, such as 2.5-1f0c9a."""
        return f"{self.exercise}-{_short(self.slug + self.way)}"

    def add(self, student: Row):
        self.count += 1
        self.alike = self.count
        if len(self.examples) < MOST_NAMES:
            self.examples.append(student)

    def with_another(self, group: "Group") -> "Group":
        """This and another one, which fail in different ways."""
        examples = [*self.examples, *group.examples][:MOST_NAMES]
        return Group(self.exercise, self.slug, "", self.count + group.count, 1, examples)


class ClassNumbers:
    """Passes of each exercise, groups of answers that fail alike, and a row for each student.

    looked_at: (student, notebook, events) for each notebook that a teacher should look at.
    open: how many submissions have no final grade.
    repeats: how many have the same code as another one, whose grade was taken over.
    tried, repeated: answers of the other ones that were tried, and that were known already.
    """

    def __init__(self):
        self.rows: list[Row] = []
        self.handed_in: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        self.titles: dict[str, str] = {}
        self.groups: dict[tuple[str, str, str], Group] = {}
        self.looked_at: list[tuple[str, str, list[str]]] = []
        self.submissions = self.open = self.repeats = self.tried = self.repeated = 0

    def add(self, student: Student):
        for grade in student.grades:
            self.submissions += 1
            self.open += not grade.is_final
            self.repeats += grade.is_repeat
            self.tried += grade.tried
            self.repeated += grade.repeated
            if events := to_look_at(grade):
                self.looked_at.append((student.name, grade.notebook, events))
        row = Row(
            student.name,
            student.page,
            {lesson: score(entries) for lesson, entries in student.lessons.items()},
            score(student.exercises),
        )
        self.rows.append(row)
        for entry in student.exercises:
            self.titles[entry.exercise] = entry.title
            self.handed_in[entry.exercise] += 1
            if entry.passed:
                self.passed[entry.exercise] += 1
            else:
                self._add_to_group(entry, row)

    def _add_to_group(self, entry: ExerciseGrade, student: Row):
        assert entry.mistake is not None  # it did not pass
        group = Group(entry.exercise, entry.mistake, way_of(entry))
        key = entry.exercise, entry.mistake, "" if group.has_name else _short(group.way)
        self.groups.setdefault(key, group).add(student)

    @property
    def lessons(self) -> list[str]:
        return sorted({lesson for row in self.rows for lesson in row.scores})

    @property
    def exercises(self) -> list[str]:
        return sorted(self.titles, key=in_numbers)

    @property
    def mistakes(self) -> list[Group]:
        """What holds people up. Answers in no group are one for each exercise and slug."""
        found, alone = [], dict[tuple[str, str], Group]()
        for group in self.groups.values():
            key = group.exercise, group.slug
            if group.has_name or group.count > 1:
                found.append(group)
            else:
                alone[key] = alone[key].with_another(group) if key in alone else group
        return sorted(
            (*found, *alone.values()),
            key=lambda group: (
                -group.alike,
                group.slug in UNTOUCHED,
                in_numbers(group.exercise),
                group.slug,
            ),
        )


def way_of(entry: ExerciseGrade) -> str:
    """How an answer fails, in words that are the same for all answers that fail alike.

    For a named mistake this is its own message. Otherwise it is the result's message without
    what belongs to one student: what the code printed, and line numbers.
    """
    message = entry.message.removeprefix(f"{NEW_CASE}\n")
    if entry.mistake not in UNNAMED:
        return message.split("\n")[0]
    message = (
        message.split("\nYour code printed:\n")[0]
        .removeprefix("The result is not right.")
        .strip("\n")
    )
    return re.sub(r"\bline \d+", "a line", message)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]
