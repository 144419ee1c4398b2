"""Puts small faults into our answers, one at a time, and lists those that a check lets pass.

python -m tools.mutants.answers 4.3 5.2       all mutants of these answers; of all without any
python -m tools.mutants.answers --built 40    all in Python, and 40 that have to be built
python -m tools.mutants.answers --list 4.3    tries nothing; shows the mutants that pass
"""

import argparse
import hashlib
import json
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lessons_content.mistakes.bank import Form
from lessons_content.mistakes.edits import our_answers
from lessons_lib import checks
from lessons_lib.checks import Exercise
from lessons_lib.cuda.compiler_errors import CompileError
from lessons_lib.paths import build_folder
from lessons_lib.processes import isolation
from tools.extras import ready

from .cpp_text import cpp_mutants
from .kept import Explained
from .mutant import Mutant

Mutants = dict[str, list[Mutant]]  # of each exercise, by its id
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60.0  # seconds for one mutant on all cases, with building
# a table of all exercises, written once no mutant is untried
TABLE = ROOT / "tools/mutants/answers.txt"
OUTCOMES = ("refused", "explained", "passes", "not built", "to do")


def main(words: list[str] | None = None) -> int:
    """Returns 0 if no mutant passes."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants.answers", description=__doc__.splitlines()[0]
    )
    parser.add_argument("exercises", nargs="*", help="ids, such as 4.3; all without any")
    parser.add_argument("--list", action="store_true", help="try nothing; show what passes")
    parser.add_argument("--built", type=int, help="how many in C++ and CUDA; all without it")
    parser.add_argument("--seed", type=int, default=0, help="for choosing these")
    parser.add_argument("--jobs", type=int, default=2, help="exercises at once")
    options = parser.parse_args(words)
    try:
        chosen = [checks.find(id) for id in options.exercises or our_answers()]
    except KeyError as error:
        print(error.args[0])
        return 2
    explained = Explained(ROOT, "answers.toml")
    results = Results(build_folder() / "answer_mutants.jsonl")
    mutants = {exercise.id: mutants_of(exercise) for exercise in chosen}
    if unused := explained.unused([each for several in mutants.values() for each in several]):
        print("answers.toml tells of mutants that there are not:", *unused, sep="\n")
        return 2
    if options.built is not None:
        mutants = some_built(mutants, options.built, options.seed)
    if not options.list:
        with ThreadPoolExecutor(options.jobs) as pool:
            tried = [
                pool.submit(try_all, checks.find(id), several, explained, results)
                for id, several in mutants.items()
            ]
        for each in tried:
            each.result()
    return print_table(mutants, explained, results, options.list)


def mutants_of(exercise: Exercise) -> list[Mutant]:
    """A mutant for each small change of our answer. Its path is the exercise's id."""
    if exercise.language != "python":
        return cpp_mutants(exercise.id, our_answers()[exercise.id])
    # imported here, because the tests run without mutmut
    from .python_text import python_mutants

    return python_mutants(exercise.id, our_answers()[exercise.id])


def some_built(mutants: Mutants, count: int, seed: int) -> Mutants:
    """All mutants of answers in Python, and `count` of the others."""
    built = [
        mutant
        for id, several in mutants.items()
        for mutant in several
        if checks.find(id).language != "python"
    ]
    kept = random.Random(seed).sample(built, min(count, len(built)))
    return {
        id: [each for each in several if checks.find(id).language == "python" or each in kept]
        for id, several in mutants.items()
    }


class Results:
    """Outcomes, a line of JSON for each in a file.

    They are valid while the check is unchanged.
    """

    def __init__(self, file: Path):
        self.file, self._known = file, {}
        file.parent.mkdir(parents=True, exist_ok=True)
        for line in file.read_text().splitlines() if file.exists() else ():
            key, outcome = json.loads(line)
            self._known[key] = outcome

    def find(self, exercise: Exercise, mutant: Mutant) -> str | None:
        return self._known.get(self._key(exercise, mutant))

    def add(self, exercise: Exercise, mutant: Mutant, outcome: str):
        key = self._key(exercise, mutant)
        self._known[key] = outcome
        with open(self.file, "a") as file:
            file.write(json.dumps([key, outcome]) + "\n")

    def _key(self, exercise: Exercise, mutant: Mutant) -> str:
        about = f"{exercise.mistakes.made_with} {mutant.key}"
        return hashlib.sha256(about.encode()).hexdigest()[:16]


def try_all(exercise: Exercise, mutants: list[Mutant], explained: Explained, results: Results):
    """Tries the mutants that are neither explained nor known.

    A mutant that ends its process, or never ends, counts as refused.
    """
    waiting = [
        mutant
        for mutant in mutants
        if not explained.reason(mutant) and results.find(exercise, mutant) is None
    ]

    def note(outcome: str) -> float:
        results.add(exercise, waiting.pop(0), outcome)
        print(".", end="", flush=True)
        return LIMIT

    while waiting:
        run = isolation.run_isolated(
            _try,
            exercise.id,
            [mutant.text for mutant in waiting],
            time_limit=LIMIT,
            report=True,
            on_report=note,
        )
        if run.ending == "raised":
            raise run.error
        if run.ending != "returned":
            note("refused")


def _try(exercise_id: str, texts: list[str], report):
    """Runs in the isolated process, and reports each outcome."""
    import torch

    torch.set_num_threads(1)
    exercise = checks.find(exercise_id)
    cases = exercise.in_order(exercise.cases())
    expected = [checks.attempt(exercise, exercise.reference, case) for case in cases]
    for text in texts:
        form = Form(text, exercise.mistakes, "mutant", is_respelt=False, is_further=False)
        report(_outcome(exercise, form, cases, expected))


def _outcome(exercise: Exercise, form: Form, cases: list, expected: list) -> str:
    if exercise.recognise(form.text):
        return "refused"
    try:
        form.load()
    except CompileError:
        return "not built"
    except Exception:
        return "refused"
    passes = all(
        exercise.same(ours, checks.attempt(exercise, form, case))
        for case, ours in zip(cases, expected, strict=True)
    )
    return "passes" if passes else "refused"


def print_table(mutants: Mutants, explained: Explained, results: Results, show: bool) -> int:
    """Prints a line for each exercise. Returns 1 if a mutant passes, else 0."""
    total: Counter = Counter()
    lines = []
    for id, several in mutants.items():
        exercise, counts = checks.find(id), Counter[str]()
        for mutant in several:
            outcome = results.find(exercise, mutant) or "to do"
            outcome = "explained" if explained.reason(mutant) else outcome
            counts[outcome] += 1
            if show and outcome == "passes":
                print(f"{mutant}\n")
        lines.append(_line(id, counts))
        total += counts
    head = f"{'':6}{'mutants':>9}" + "".join(f"{outcome:>11}" for outcome in OUTCOMES)
    table = "\n".join(line.rstrip() for line in (head, *lines, _line("all", total))) + "\n"
    print(f"\n{table}", end="")
    is_whole = sum(map(len, mutants.values())) == sum(
        len(mutants_of(checks.find(id))) for id in our_answers()
    )
    if is_whole and not total["to do"]:
        TABLE.write_text(table, encoding="utf-8")
    return int(total["passes"] > 0)


def _line(name: str, counts: Counter) -> str:
    numbers = "".join(f"{counts[outcome] or '':>11}" for outcome in OUTCOMES)
    return f"{name:6}{sum(counts.values()):>9}{numbers}"


if __name__ == "__main__":
    ready("mutants")
    sys.exit(main())
