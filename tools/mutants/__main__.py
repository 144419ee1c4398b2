"""Puts small faults into the code, one at a time, and lists those that no test notices.

python -m tools.mutants paged_attention/pool/slots.py     all mutants of a file, or a folder
python -m tools.mutants --sample 50 --seed 1              some of all
python -m tools.mutants --list lessons_lib                runs nothing; shows survivors
"""

import argparse
import gc
import importlib
import os
import random
import sys
from collections import defaultdict
from pathlib import Path

# Once a mathematics library has started threads, the process cannot be forked.
os.environ |= {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
os.environ.pop("PYTHONPATH", None)

from tools.extras import ready

from .concerns import Concerns
from .kept import Explained, Results
from .runner import BrokenBaseline, Runner
from .table import print_table
from .texts import mutants_of
from .trees import keeps_kernels

ROOT = Path(__file__).resolve().parents[2]


def main(words: list[str] | None = None, root: Path = ROOT) -> int:
    """Returns 0, or 2 if the mutants cannot be tried.

    root: the repository, with tools/mutants/concerns.toml and explained.toml.
    """
    arguments = _arguments(words)
    try:
        concerns, explained = Concerns(root), Explained(root)
        files = concerns.files(arguments.paths)
    except ValueError as error:
        print(error)
        return 2
    results = Results(root, root / ".build/mutants/results.jsonl", arguments.fresh)
    mutants = [mutant for file in files for mutant in mutants_of(root, file)]
    if unused := explained.unused(mutants):
        print("explained.toml tells of mutants that there are not:", *unused, sep="\n")
        return 2
    if arguments.sample and arguments.sample < len(mutants):
        kept = set(random.Random(arguments.seed).sample(range(len(mutants)), arguments.sample))
        mutants = [mutant for place, mutant in enumerate(mutants) if place in kept]
    if not arguments.list:
        wanted = [
            mutant
            for mutant in mutants
            if not explained.reason(mutant)
            and not results.find(mutant, concerns.tests(mutant.path))
        ]
        try:
            _run(root, wanted, concerns, results, arguments.jobs)
        except BrokenBaseline as error:
            print(error)
            return 2
    print_table(mutants, concerns, results, explained, show=arguments.list)
    return 0


def _arguments(words):
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "paths",
        nargs="*",
        help="files or folders; all that concerns.toml names if there are none",
    )
    parser.add_argument("--list", action="store_true", help="run nothing, show the survivors")
    parser.add_argument("--sample", type=int, metavar="N", help="N mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time"
    )
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    return parser.parse_args(words)


def _run(root, mutants, concerns, results, jobs):
    """Runs the mutants in batches with the same tests.

    Each batch first runs without a fault.
    """
    if not mutants:
        return
    _import_what_takes_long(concerns.imports)
    batches = defaultdict(list)
    for mutant in mutants:
        batches[(*concerns.tests(mutant.path), keeps_kernels(root, mutant.path))].append(
            mutant
        )
    runner = Runner(root, root / ".build/mutants", min(jobs, len(mutants)), concerns.patience)
    done = 0
    try:
        for (*tests, kept), batch in batches.items():
            _say(
                f"{len(mutants) - done} mutants to go; "
                f"first {', '.join(tests)} without a fault"
            )
            python = sorted({mutant.path for mutant in batch if mutant.path.endswith(".py")})
            baseline = runner.baseline(tests, python, kept)
            for mutant, verdict in runner.run(batch, baseline, concerns.elsewhere, kept):
                done += 1
                results.add(mutant, tests, verdict)
                _say(
                    f"{done}/{len(mutants)} {mutant.path}:{mutant.line} {verdict.outcome} "
                    f"({verdict.seconds:.1f} s) {verdict.by}"
                )
    finally:
        runner.close()
        print()


def _say(line: str):
    """Prints a line. In a terminal, it replaces the line before."""
    print(
        f"\r\033[K{line[:150]}" if sys.stdout.isatty() else line,
        end="" if sys.stdout.isatty() else "\n",
        flush=True,
    )


def _import_what_takes_long(names: list[str]):
    """Imports modules without using them. Modules that are here already are not imported
    again.

    Using them could start PyTorch's threads, and then a fork would hang. Objects that exist
    before a fork are left out of the child's garbage collection, which would look at all of
    PyTorch.
    """
    for name in ("pytest", "hypothesis.strategies", *names):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    ready("mutants")
    sys.exit(main())
