"""What the pages show: each student's grades, and the numbers of the class.

The numbers are counted student by student. A class may have tens of thousands, so nothing is
kept of a student but what their row shows.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import groupby

from lessons_grading.grades import NEW_CASE, ExerciseGrade, SubmissionGrade
from lessons_lib import checks
from lessons_lib.paths import NOTEBOOKS

# These are watched from within the answer's own process, which can switch the watch off. In a
# notebook that is enough: learners do not attack themselves.
NOT_PROVED = {
    "1.3": "that each method holds the lock while it touches the data",
    "3.4": "that the scores of many blocks are never in memory at once",
    "4.5": "that the number of calls does not grow with the number of requests",
    "5.3": "that each tensor is on the device that was asked for",
    "10.2": "that each tensor is on the device that was asked for",
    "10.5": "that nothing is read on the host",
}
UNTOUCHED = ("missing", checks.NOT_ATTEMPTED)
# Slugs that name no mistake. The reason may be anything.
UNNAMED = ("wrong", "crashed", "exited", "timed-out", "does-not-compile")
MOST_NAMES = 5  # of students, in one row of the class page


@dataclass(frozen=True)
class Student:
    """All that one student submitted. Of several answers to an exercise, the best counts."""

    name: str
    grades: tuple[SubmissionGrade, ...]

    @property
    def page(self) -> str:
        """The file name of the page, at most 255 bytes long."""
        name = self.name.encode()
        if len(name) > 250:
            name = name[:200] + hashlib.sha256(name).hexdigest()[:16].encode()
        return f"{name.decode(errors='ignore').replace('/', '_')}.html"

    @cached_property
    def exercises(self) -> list[ExerciseGrade]:
        """The best grade of each exercise, in order of their numbers."""

        def worth(entry: ExerciseGrade) -> tuple:
            return entry.earned, entry.mistake not in UNTOUCHED

        best: dict[str, ExerciseGrade] = {}
        for grade in self.grades:
            for entry in grade.exercises:
                before = best.get(entry.exercise, entry)
                best[entry.exercise] = max(before, entry, key=worth)
        return sorted(best.values(), key=lambda entry: in_numbers(entry.exercise))

    @property
    def lessons(self) -> dict[str, list[ExerciseGrade]]:
        by_lesson = groupby(self.exercises, lambda entry: lesson_of(entry.exercise))
        return {lesson: list(entries) for lesson, entries in by_lesson}

    @property
    def next_steps(self) -> list[dict]:
        """The first two exercises that have not passed, with their first hints and places."""
        open_still = [entry for entry in self.exercises if not entry.passed]
        return [
            {
                "grade": entry,
                "exercise": checks.find(entry.exercise),
                "place": f"{file_name(lesson_of(entry.exercise))}.ipynb"
                f"#exercise-{entry.exercise.replace('.', '-')}",
            }
            for entry in open_still[:2]
        ]


def students_of(grades: Iterable[SubmissionGrade]) -> Iterator[Student]:
    """The students, from grades `in_order`."""
    for name, theirs in groupby(grades, lambda grade: grade.student):
        yield Student(name, tuple(theirs))


def besides(grade: SubmissionGrade) -> list[str]:
    """The events, except for a missing sandbox, which each page reports anyway."""
    return [event for event in grade.events if event != "it ran without a sandbox"]


def to_look_at(grade: SubmissionGrade) -> list[str]:
    """The events for a teacher, without errors of cells: an unfinished notebook has many."""
    return [event for event in besides(grade) if not re.match(r"cell \d+ raised ", event)]


def in_numbers(exercise: str) -> tuple[int, ...]:
    """Makes 2.10 come after 2.9."""
    return tuple(map(int, exercise.split(".")))


def lesson_of(exercise: str) -> str:
    """The number of an exercise's lesson: "02" for 2.5."""
    return f"{in_numbers(exercise)[0]:02d}"


def not_proved(exercise: str) -> str:
    """What a passed exercise does not prove, because an answer could switch off its watch."""
    is_cuda = checks.find(exercise).language == "cuda"
    return NOT_PROVED.get(exercise, "that its threads do not race" if is_cuda else "")


@cache
def file_name(lesson: str) -> str:
    """The name of the lesson's notebook, without its ending."""
    return next((path.stem for path in NOTEBOOKS.glob(f"{lesson}_*.ipynb")), lesson)


def score(entries: Iterable[ExerciseGrade]) -> dict[str, int]:
    entries = list(entries)
    return {
        "earned": sum(entry.earned for entry in entries),
        "points": sum(entry.points for entry in entries),
    }


@dataclass(frozen=True)
class Row:
    """A student's row in the class page. It also names the student as a group's example."""

    name: str
    page: str
    scores: dict[str, dict[str, int]]  # by lesson
    total: dict[str, int]


@dataclass
class Group:
    """Answers to an exercise that fail alike: with one named mistake, or one wrong result.

    Several answers that each fail in a different way share a group too, without a `way`.

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
        text = (self.slug + self.way).encode("utf-8", "backslashreplace")
        return f"{self.exercise}-{hashlib.sha256(text).hexdigest()[:12]}"

    def add(self, student: Row):
        self.count += 1
        self.alike = self.count
        if len(self.examples) < MOST_NAMES:
            self.examples.append(student)


class ClassNumbers:
    """Passes of each exercise, groups of answers that fail alike, and a row for each student.

    looked_at: (student, notebook, events) for each notebook that a teacher should look at.
    open: how many submissions have no final grade.
    repeats: how many have the same code as another one, whose grade was taken over.
    tried, repeated: how many answers were tried, and how many were known already.
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
        scores = {lesson: score(entries) for lesson, entries in student.lessons.items()}
        row = Row(student.name, student.page, scores, score(student.exercises))
        self.rows.append(row)
        for entry in student.exercises:
            self.titles[entry.exercise] = entry.title
            self.handed_in[entry.exercise] += 1
            if entry.passed:
                self.passed[entry.exercise] += 1
            else:
                group = group_of(entry)
                key = group.exercise, group.slug, "" if group.has_name else group.name
                self.groups.setdefault(key, group).add(row)

    @property
    def lessons(self) -> list[str]:
        return sorted({lesson for row in self.rows for lesson in row.scores})

    @property
    def exercises(self) -> list[str]:
        return sorted(self.titles, key=in_numbers)

    @property
    def mistakes(self) -> list[Group]:
        """What holds people up. Answers that fail in no other answer's way share a group for
        each exercise and slug.
        """
        found, alone = [], dict[tuple[str, str], list[Group]]()
        for group in self.groups.values():
            if group.has_name or group.count > 1:
                found.append(group)
            else:
                alone.setdefault((group.exercise, group.slug), []).append(group)
        for (exercise, slug), groups in alone.items():
            examples = [group.examples[0] for group in groups[:MOST_NAMES]]
            shared = Group(exercise, slug, "", len(groups), 1, examples)
            found.append(shared if len(groups) > 1 else groups[0])
        return sorted(
            found,
            key=lambda group: (
                -group.alike,
                group.slug in UNTOUCHED,
                in_numbers(group.exercise),
                group.slug,
            ),
        )


def group_of(entry: ExerciseGrade) -> Group:
    """The group that an answer which has not passed belongs to, still empty."""
    return Group(entry.exercise, str(entry.mistake), way_of(entry))


def way_of(entry: ExerciseGrade) -> str:
    """How an answer fails, in words that are the same for all answers that fail alike.

    For a named mistake this is its own message. Otherwise it is the result's message without
    what belongs to one student: what the code printed, and line numbers.
    """
    message = entry.message.removeprefix(f"{NEW_CASE}\n")
    if entry.mistake not in UNNAMED:
        return message.split("\n")[0]
    message = message.split("\nYour code printed:\n")[0]
    message = message.removeprefix("The result is not right.").strip("\n")
    return re.sub(r"\bline \d+", "a line", message)
