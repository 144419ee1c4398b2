"""Makes a class whose grades are known before it is graded.

    export PYTHONPATH="$PWD/tests/banks:$PWD/tests/support/exercises"
    cd tests/support/grading; python made_class.py FOLDER --students 200
        makes it, with expected.json
    python made_class.py FOLDER --compare RESULTS
        lists what came out otherwise

A student hands in right answers, known mistakes, small faults in our answer (mutants), nothing
at all, or what does harm beside a right answer. Mutants are left out where mutmut is missing.
"""

import argparse
import ast
import builtins
import importlib.util
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import answers
import right_answers
from lessons_content.mistakes.edits import our_answers
from lessons_lib import checks
from lessons_lib.checks import Exercise

ANY = "any"  # a mistake that may have any name
ROOT = Path(__file__).resolve().parents[3]
# how many of a hundred students hand in what
KINDS = {"right": 40, "mistake": 35, "mutant": 10, "empty": 10, "hostile": 5}
EMPTY = {
    "stub": checks.NOT_ATTEMPTED,
    "nothing": "missing",
    "no notebook": None,
}
HOSTILE = {  # a cell, and a part of what the report says of it
    "import os\nos._exit(3)": "the process ended in cell",
    "import ctypes\nctypes.string_at(0)": "the process crashed in cell",
    "raise SystemExit(4)": "raised SystemExit",
    "import os\nos.kill(-1, 9)": "raised ProcessLookupError",
    "open('/etc/hostname', 'w')": "raised OSError",
    "print('x' * (20 << 20))": "wrote more than",
}


@dataclass(frozen=True)
class Answer:
    """A text, and what the grade says of it: the mistake's name, ANY, or None if it passes."""

    text: str
    mistake: str | None


@dataclass(frozen=True)
class Expected:
    """kind: as in KINDS. mistakes: by exercise. event: a part of what the report says."""

    kind: str
    mistakes: dict[str, str | None]
    event: str = ""


class Answers:
    """What can be handed in for one exercise in Python."""

    def __init__(self, exercise: Exercise):
        self.exercise = exercise
        shared, others = right_answers.read(right_answers.answers_file(exercise), exercise)
        texts = [Answer(our_answers()[exercise.id], None)]
        texts += [
            Answer(f"{shared}\n{each.text}", None if each.slug == "right" else each.slug)
            for each in others
        ]
        texts += [Answer(form.text, slug) for slug, form in answers.forms_of(exercise)]
        whole = [full for each in texts if (full := self._complete(each))]
        self.right = [each for each in whole if each.mistake is None]
        self.mistaken = [each for each in whole if each.mistake is not None]
        self.mutants = [full for each in self._mutants() if (full := self._complete(each))]

    def _mutants(self) -> list[Answer]:
        if not importlib.util.find_spec("mutmut"):
            return []
        from tools.mutants.answers import mutants_of
        from tools.mutants.kept import Explained

        explained = Explained(ROOT, "answers.toml")
        return [
            Answer(each.text, None if explained.reason(each) else ANY)
            for each in mutants_of(self.exercise)
        ]

    def _complete(self, answer: Answer) -> Answer | None:
        """With the imports that it needs, or None if it uses what no import gives.

        Later exercises are stubs where an answer is tried, so one that calls them is left out.
        """
        lesson = self.exercise.id.split(".")[0].zfill(2)
        every = [each.answer_name for each in checks.exercises_of(lesson)]
        later = every[every.index(self.exercise.answer_name) + 1 :]
        if {*later} & set(re.findall(r"\w+", answer.text)):
            return None
        tree = ast.parse(answer.text)
        names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
        made = {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
        made |= {each.id for each in ast.walk(tree) if _is_made(each)}
        made |= {
            each.name
            for each in ast.walk(tree)
            if isinstance(each, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)
        }
        made |= {
            (alias.asname or alias.name).partition(".")[0]
            for each in ast.walk(tree)
            if isinstance(each, ast.Import | ast.ImportFrom)
            for alias in each.names
        }
        scope = {"torch": sys.modules["torch"], **self.exercise.mistakes.scope}
        given = _imports_of_the_lesson(self.exercise)
        imports = ["from __future__ import annotations"]
        for name in sorted(names - made - {*vars(builtins)}):
            line = given.get(name) or _import_of(name, scope.get(name))
            if line is None:
                return None
            imports.append(line)
        return Answer("\n".join([*dict.fromkeys(imports), answer.text]), answer.mistake)


def _imports_of_the_lesson(exercise: Exercise) -> dict[str, str]:
    """The line that imports a name, for each that the lesson's own cells import."""
    lines = {}
    for cell in answers._lesson(exercise).cells:
        if cell.kind not in ("code", "exercise"):
            continue
        for node in ast.parse(cell.solution()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for each in node.names:
                    name = (each.asname or each.name).partition(".")[0]
                    lines[name] = ast.unparse(node)
    return lines


def _is_made(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _import_of(name: str, value: object) -> str | None:
    if isinstance(value, type(ast)):
        return f"import {value.__name__} as {name}"
    module = str(getattr(value, "__module__", None))
    known = getattr(value, "__name__", name)
    if value is None or module == "None" or module.startswith("lessons_content"):
        return None
    return f"from {module} import {known} as {name}"


def make_class(
    folder: Path, students: int, lesson: str = "00", seed: int = 0, alike: float = 0.0
) -> dict[str, Expected]:
    """Writes STUDENT.ipynb for each student, and returns what is expected of each.

    alike: the share of notebooks that may be the same as another's.
    """
    chance = random.Random(seed)
    every = [Answers(each) for each in checks.exercises_of(lesson)]
    folder.mkdir(parents=True)
    expected = {}
    for number in range(students):
        name = f"student{number:05d}"
        kind = chance.choices([*KINDS], [*KINDS.values()])[0]
        cells, about = _MAKERS[kind](every, chance)
        if chance.random() >= alike:
            cells.append(f"me = {name!r}")
        expected[name] = about
        is_notebook = about.event != NO_NOTEBOOK
        text = _notebook(cells, lesson) if is_notebook else "this is no notebook"
        (folder / f"{name}.ipynb").write_text(text)
    return expected


NO_NOTEBOOK = "this is not a notebook"


def _right(every: list[Answers], chance) -> tuple[list[str], Expected]:
    chosen = {each.exercise.id: chance.choice(each.right) for each in every}
    return _handed_in("right", chosen)


def _mistake(every: list[Answers], chance) -> tuple[list[str], Expected]:
    chosen = {
        each.exercise.id: chance.choice(each.mistaken + each.right[:1]) for each in every
    }
    return _handed_in("mistake", chosen)


def _mutant(every: list[Answers], chance) -> tuple[list[str], Expected]:
    chosen = {each.exercise.id: chance.choice(each.mutants or each.mistaken) for each in every}
    return _handed_in("mutant", chosen)


def _empty(every: list[Answers], chance) -> tuple[list[str], Expected]:
    what = chance.choice([*EMPTY])
    if what == "no notebook":
        return [], Expected("empty", {}, NO_NOTEBOOK)
    stub = "def {}(*arguments):\n    raise NotImplementedError('Exercise {}')"
    cells = [
        stub.format(each.exercise.answer_name, each.exercise.id) if what == "stub" else "x = 1"
        for each in every
    ]
    return cells, Expected("empty", {each.exercise.id: EMPTY[what] for each in every})


def _hostile(every: list[Answers], chance) -> tuple[list[str], Expected]:
    cells, expected = _right(every, chance)
    harm = chance.choice([*HOSTILE])
    cells.insert(chance.randint(0, len(cells)), harm)
    return cells, Expected("hostile", expected.mistakes, HOSTILE[harm])


_MAKERS: dict[str, Callable] = {
    "right": _right,
    "mistake": _mistake,
    "mutant": _mutant,
    "empty": _empty,
    "hostile": _hostile,
}


def _handed_in(kind: str, chosen: dict[str, Answer]) -> tuple[list[str], Expected]:
    mistakes = {exercise: answer.mistake for exercise, answer in chosen.items()}
    return [answer.text for answer in chosen.values()], Expected(kind, mistakes)


def _notebook(sources: list[str], lesson: str) -> str:
    """Its last cell says which lesson it is, and does nothing."""
    mark = f"if False:\n    check('{checks.exercises_of(lesson)[0].id}', None)"
    cells = [
        {
            "cell_type": "code",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for source in [*sources, mark]
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def differences(expected: dict[str, Expected], submissions: list[dict]) -> list[str]:
    """What came out otherwise than expected, in a line each."""
    found = []
    for grade in submissions:
        about = expected[grade["student"]]
        came = {each["exercise"]: each["mistake"] for each in grade["exercises"]}
        for exercise, mistake in about.mistakes.items():
            other = came.get(exercise, "no grade")
            if other != mistake and (mistake != ANY or other in (None, "no grade")):
                words = f"{exercise} is {other}, and {mistake} was expected"
                found.append(f"{grade['student']} ({about.kind}): {words}")
        if about.event not in " ".join(grade["events"]):
            found.append(f"{grade['student']}: no event says {about.event!r}")
    missing = expected.keys() - {grade["student"] for grade in submissions}
    return found + [f"{student} has no grade" for student in sorted(missing)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--lesson", default="00")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alike", type=float, default=0.0)
    parser.add_argument("--compare", type=Path, metavar="RESULTS")
    words = parser.parse_args()
    file = words.folder.parent / f"{words.folder.name} expected.json"
    if words.compare:
        known = {name: Expected(**each) for name, each in json.loads(file.read_text()).items()}
        data = json.loads((words.compare / "results.json").read_text())
        found = differences(known, data["submissions"])
        print("\n".join([*found, f"{len(known)} students, {len(found)} differences"]))
        return 1 if found else 0
    made = make_class(words.folder, words.students, words.lesson, words.seed, words.alike)
    file.write_text(json.dumps({name: asdict(each) for name, each in made.items()}))
    print(f"{len(made)} students:", dict(Counter(each.kind for each in made.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
