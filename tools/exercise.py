"""Runs all that concerns one exercise: the records of its mistakes, its lesson's notebooks,
its own answer, right answers, mistakes, hidden cases, and small faults in our answer.

    make exercise ID=8.8

Each mistake in further spellings takes minutes, and is left to `make test-all`.
"""

import os
import subprocess
import sys

from lessons_content.mistakes import __main__ as command
from lessons_lib import checks
from lessons_lib.paths import ROOT
from tools.notebooks import build

FILES = [
    "lessons_content/test_banks.py",
    "lessons_lib/checks/test_case_sizes.py",
    "lessons_lib/checks/test_checks.py",
    "lessons_grading/test_grade_reference.py",
    "lessons_content/test_hidden.py",
    "lessons_content/test_mistakes.py",
]
BUILT = ["-n", "auto", "--every", "24", "-m", "not slow"]
# A second process imports and collects for longer than the tests of one in Python take.
OPTIONS = {"python": ["--every", "1"], "c++": BUILT, "cuda": BUILT}
BUILT_MUTANTS = "6"  # of an answer in C++ or CUDA; of one in Python all are tried


def main(words: list[str]) -> int:
    """`words`: the exercise's id, then options for pytest. Returns 0 if all is well."""
    exercise, *options = words or [""]
    lesson = exercise.partition(".")[0].zfill(2)
    try:
        language = checks.find(exercise).language
        problems = build.check(build.select([lesson]))
    except (KeyError, build.SourceError) as error:
        print(error.args[0])
        return 2
    if command.main([exercise]):
        return 2
    print(
        *(problems or [f"The notebooks of lesson {lesson} are in step with their source."]),
        sep="\n",
        flush=True,
    )
    tests = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *OPTIONS[language],
            "-k",
            f"([{exercise}] or [{exercise}-) and not respelt",
            *(f"tests/{name}" for name in FILES),
            *options,
        ],
        cwd=ROOT,
    )
    mutants = subprocess.run(
        [sys.executable, "-m", "tools.mutants.answers", exercise, "--built", BUILT_MUTANTS],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
    )
    return tests.returncode or mutants.returncode or int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
