"""The commands of all benchmarks: their arguments, and keeping and showing a run."""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from lessons_content.bench_records.recorded_runs import Record
from lessons_lib import rooms


class Command:
    """The command of a benchmark.

    name: `ladder` for `python -m tools.bench ladder`.
    run: the class of its runs.
    table: turns a run into text.
    overview: turns a run into a figure; None if the benchmark has no `--plot`.
    """

    def __init__(
        self,
        name: str,
        description: str,
        run: type[Record],
        table: Callable[[Record], str],
        overview: Callable | None = None,
    ):
        self.run, self.table, self.overview = run, table, overview
        self.words = [*rooms.BENCH, name]
        self.parser = argparse.ArgumentParser(" ".join(self.words), description=description)
        add = self.parser.add_argument
        add("--json", type=Path, metavar="FILE", help="write the run to FILE")
        if overview:
            add("--plot", type=_png_file, metavar="FILE.png", help="draw the run")
        add("--record", action="store_true", help="keep the run with the course")
        add("--recorded", action="store_true", help="print the kept runs, measure nothing")
        add("--folder", type=Path, default=run.folder, help="keep runs there; %(default)s")

    def parse(
        self, words: Sequence[str] | None, partial: Sequence[str] = ()
    ) -> argparse.Namespace:
        """The arguments. Ends the program with the reason if they do not fit.

        partial: names of arguments that make a run too small to be kept.
        """
        arguments = self.parser.parse_args(words)
        if arguments.json and not arguments.json.absolute().parent.is_dir():
            self.parser.error(
                f"{arguments.json}: there is no folder {arguments.json.absolute().parent}"
            )
        if arguments.record and any(
            getattr(arguments, name) for name in (*partial, "recorded")
        ):
            names = ", ".join(f"--{name}" for name in (*partial, "recorded"))
            self.parser.error(f"--record keeps a whole new run, without any of {names}")
        return arguments

    def needs_gpu(self) -> None:
        """Ends the program if PyTorch sees no GPU."""
        if not torch.cuda.is_available():
            self.parser.error(
                "nothing can be measured: PyTorch sees no NVIDIA GPU here. "
                "--recorded prints what was measured on other machines"
            )

    def line(self, arguments: argparse.Namespace, *names: str) -> str:
        """The measured command, with those of the named arguments that are not default."""
        words = [*self.words]
        for name in names:
            value = getattr(arguments, name)
            if value == self.parser.get_default(name):
                continue
            values = value if isinstance(value, list) else [value] * (value is not True)
            # 20 and not 20.0, as people type it.
            texts = [str(each).removesuffix(".0") for each in values]
            words += [f"--{name.replace('_', '-')}", *texts]
        return shlex.join(words)

    def in_turns(
        self, words: Sequence[str] | None, turns: int, measure: Callable[..., Record]
    ) -> int:
        """The whole command of a benchmark that measures on a GPU, in turns.

        turns: their default number.
        measure: makes the run from the number of turns, the command's line, and `say`.
        """
        self.parser.add_argument(
            "--turns", type=int, default=turns, help="counted turns of each"
        )
        arguments = self.parse(words)
        if arguments.turns < 1:
            self.parser.error(f"--turns must be 1 or more, not {arguments.turns}")
        if arguments.recorded:
            return self.show(arguments)
        self.needs_gpu()
        run = measure(arguments.turns, self.line(arguments, "turns"), say)
        return self.keep(run, arguments)

    def show(self, arguments: argparse.Namespace) -> int:
        """Prints the runs that are kept, and draws the first one.

        Returns 1 if there is none.
        """
        runs = self.run.recorded(arguments.folder)
        print(
            "\n\n\n".join(map(self.table, runs)) or "No run is recorded. --record keeps one."
        )
        if runs:
            self._write(runs[0], arguments)
        return 0 if runs else 1

    def keep(self, run: Record, arguments: argparse.Namespace, fault: str = "") -> int:
        """Prints a new run, draws it, and keeps it if `--record` says so. Returns 1 for a
        fault.

        fault: why the run is wrong. A wrong run is not kept.
        """
        print(self.table(run))
        self._write(run, arguments)
        if arguments.record and fault:
            print(f"\nNot recorded: {fault}.", file=sys.stderr)
        elif arguments.record:
            file = arguments.folder / run.file_name
            run.save(file)
            print(f"\nRecorded in {file}")
        return 1 if fault else 0

    def _write(self, run: Record, arguments: argparse.Namespace) -> None:
        if arguments.json:
            run.save(arguments.json)
        if self.overview and arguments.plot:
            self.overview(run).savefig(arguments.plot, dpi=100, facecolor="white")


def say(line: str) -> None:
    """Prints the progress of a benchmark."""
    print(line, file=sys.stderr, flush=True)


def _png_file(text: str) -> Path:
    path = Path(text)
    if path.suffix != ".png":
        raise argparse.ArgumentTypeError(f"it writes a PNG; the name {path} ends otherwise")
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: there is no folder {path.parent}")
    return path
