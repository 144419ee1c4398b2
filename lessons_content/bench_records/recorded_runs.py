"""Recorded runs of the benchmarks: a folder for each benchmark, a JSON file for each card."""

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import ClassVar, Self

import msgspec

from lessons_lib import rooms


class Record:
    """The base of a frozen dataclass that holds a run: `class Run(Record, kept_in="load")`.

    kept_in: the folder of its files, in `measured/` beside the module of the class.
    """

    folder: ClassVar[Path]

    def __init_subclass__(cls, kept_in: str):
        module = sys.modules[cls.__module__]
        cls.folder = Path(str(module.__file__)).resolve().parent / "measured" / kept_in

    @property
    def file_name(self) -> str:
        """`NVIDIA H200` is in nvidia-h200.json. All processors share cpu.json."""
        if getattr(self, "device", "cuda") == "cpu":
            return "cpu.json"
        words = "".join(letter if letter.isalnum() else " " for letter in self.card.lower())
        return f"{'-'.join(words.split())}.json"

    @property
    def command_today(self) -> str:
        """The command that makes such a run today. `command` made this run."""
        today = " ".join(rooms.BENCH)
        return re.sub(r"^python -m lessons_bench\.", f"{today} ", self.command)

    def save(self, path: Path) -> None:
        """Writes a file, and makes its folder. Raises ValueError for NaN and infinity."""
        text = json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """The run in a file.

        Raises ValueError, with the file's name, if it holds no such run.
        """
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} is not a run of the benchmark {cls.folder.name}: {error}"
            ) from None

    @classmethod
    def recorded(cls, folder: Path | None = None) -> list[Self]:
        """The runs that are kept with the course, or in `folder`. GPUs come first, by their
        names.

        Raises ValueError, with the file's name, if a file holds no run.
        """
        paths = (folder or cls.folder).glob("*.json")
        paths = sorted(paths, key=lambda path: (path.stem == "cpu", path.name))
        return [cls.load(path) for path in paths]
