"""Where runs of the benchmarks are kept: a folder for each benchmark, a file for each card."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

MEASURED = Path(__file__).resolve().parent / "measured"

Run = TypeVar("Run")


def write(path: Path, content: dict[str, Any]) -> None:
    """Writes a run's file, and makes its folder. Raises ValueError for NaN and infinity."""
    text = json.dumps(content, indent=1, allow_nan=False)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text + "\n", encoding="utf-8")


def read_all(folder: Path, load: Callable[[Path], Run]) -> list[Run]:
    """The runs of a folder, by their files' names. `load` reads one."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


def file_name(card: str) -> str:
    """A card's, without an end: `NVIDIA H200` gives nvidia-h200."""
    words = "".join(letter if letter.isalnum() else " " for letter in card.lower())
    return "-".join(words.split())
