"""The recorded result of each form of a mistake on each visible case.

With them a mistake is named at once, without trying hundreds of forms. This package's command
writes one file for each exercise. A record counts only for the text and the exercise that it
was made with.
"""

import base64
import hashlib
import json
import re
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lessons_content.mistakes import packing
from lessons_lib.checks import Raised, result_codec

_RAISED = ["course", Raised.__module__, "Raised"]
# Modules that read the mistakes. They do not change the mistakes' results.
_ENGINE = ("lessons_content.mistakes.", "lessons_content.exercises.exercise")
# Attributes of a result that is a text. A learner reads them, but no check compares them.
_BUILT = {".cpp", ".cu", ".cuh", ".h"}
_SHOWN_ALONE = {"where", "message"}
_PRIVATE = re.compile(r"\b_(?!_)\w+")
FOLDER = Path(__file__).parent / "records"
# replaces a result that depends on rounding; no encoded result is an empty dictionary
HANGS: dict = {}


class Records:
    """The records of one exercise; empty if the exercise has changed since.

    made_with: a digest of the exercise.
    source: a digest of the texts that the forms were made from.
    versions: of Python and PyTorch. Other versions may give errors other words.
    forms: the row of each text, by the text's key: the number of its result on each case.
    named: (slug, number of the form, its row) for each different row, in the order in which
        mistakes are compared.
    """

    def __init__(self, head: dict | None = None, cases: Sequence[bytes] = ()):
        head = head or {"made_with": "", "source": "", "versions": "", "columns": []}
        self.made_with, self.source = head["made_with"], head["source"]
        self.versions = head["versions"]
        rows = [*zip(*head["columns"], strict=True)]
        self.forms = {text: rows[row] for text, row in head.get("forms", {}).items()}
        self.named = [(slug, number, rows[row]) for slug, number, row in head.get("named", ())]
        self._cases = cases
        self._results: dict[int, list] = {}
        self._decoded: dict[tuple[int, int], Any] = {}

    def _encoded(self, number: int, place: int):
        """A result of a case."""
        if number not in self._results:
            self._results[number] = packing.unpacked(self._cases[number])
        return packing.encoded(*self._results[number][place])

    def find(self, text: str, number: int) -> tuple[int, Any] | None:
        """(number, result) of a text on a case. None if nothing is recorded."""
        row = self.forms.get(key(text))
        return None if row is None else self.at(row, number)

    def at(self, row: Sequence[int], number: int) -> tuple[int, Any] | None:
        if number >= len(row):
            return None
        place = number, row[number]
        if place not in self._decoded:
            encoded = self._encoded(*place)
            self._decoded[place] = HANGS if encoded == HANGS else result_codec.decode(encoded)
        decoded = self._decoded[place]
        return None if decoded is HANGS else (place[1], decoded)

    def gives(self, same, recorded, actual) -> bool:
        """Whether a recorded result is the `actual` one.

        Other versions' errors may differ in words.
        """
        if same(recorded, actual):
            return True
        from_elsewhere = self.versions != versions()
        return from_elsewhere and same(*map(without_words, (recorded, actual)))

    def encoded(self, text: str) -> list:
        """The recorded results of a text on all cases."""
        return [
            self._encoded(number, place) for number, place in enumerate(self.forms[key(text)])
        ]


def key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def file_of(exercise_id: str) -> Path:
    return FOLDER / f"{exercise_id}.xz"


def read(exercise_id: str, made_with: str) -> Records:
    """The records in the exercise's file, if they were made with this (see `harness`)."""
    try:
        found = Records(*packing.read(file_of(exercise_id).read_bytes()))
        if found.made_with == made_with:
            return found
    except (OSError, EOFError, ValueError, KeyError, ImportError):
        pass  # there is no such file, it is incomplete, or this Python has no xz
    return Records()


def write(
    exercise_id: str,
    made_with: str,
    source: str,
    recorded: dict[str, list],
    named: list[tuple[str, int, str]],
):
    """Writes the file of an exercise.

    recorded: for each text, its encoded result on each case, or HANGS.
    named: (slug, number of the form, its text), in the order in which mistakes are compared.
    """
    num_cases = len(next(iter(recorded.values())))
    places: list[dict[str, int]] = [{} for _ in range(num_cases)]
    rows: dict[tuple[int, ...], int] = {}
    forms = {}
    for text, given in recorded.items():
        row = tuple(
            places[number].setdefault(json.dumps(result), len(places[number]))
            for number, result in enumerate(given)
        )
        forms[text] = rows.setdefault(row, len(rows))
    different: dict[Any, tuple] = {}
    for slug, number, text in named:
        is_whole = HANGS not in recorded[text]
        different.setdefault(forms[text] if is_whole else text, (slug, number, forms[text]))
    head = {
        "made_with": made_with,
        "source": source,
        "versions": versions(),
        "columns": [*zip(*rows, strict=True)],
        "forms": {key(text): row for text, row in forms.items()},
        "named": [*different.values()],
    }
    FOLDER.mkdir(exist_ok=True)
    cases = ([*map(json.loads, results)] for results in places)
    file_of(exercise_id).write_bytes(packing.write(head, cases))


def coarse(encoded):
    """An encoded result that packs better: a float of a tensor has 16 bits, because checks
    compare it to 1e-4 (tensors.py), and an error has no line.
    """

    def change(part: list) -> list | None:
        if part[:1] == ["course"] and isinstance(part[3], str):
            parts = {name: its for name, its in part[4].items() if name not in _SHOWN_ALONE}
            return [*part[:4], parts]
        if part[:2] != ["tensor", "torch.float32"]:
            return None
        bits = np.frombuffer(base64.b64decode(part[3]), np.uint32)
        shorter = (bits + np.uint32(1 << 6)) >> np.uint32(7) << np.uint32(7)
        # Not NaN and infinity, nor the largest numbers, which would become infinite.
        is_finite = [np.isfinite(each.view(np.float32)) for each in (bits, shorter)]
        bits = np.where(np.logical_and(*is_finite), shorter, bits)
        return [*part[:3], base64.b64encode(bits.tobytes()).decode()]

    return packing.changed(encoded, change)


def versions() -> str:
    python = ".".join(map(str, sys.version_info[:2]))
    return f"Python {python}, PyTorch {torch.__version__}"


_ABOUT_NAMES = ("NameError", "UnboundLocalError", "AttributeError")


def without_words(result):
    """The result, in which errors have their types and no words.

    An error about a name keeps the names in quotes, because no version changes them.
    """

    def change(part: list) -> list | None:
        if part[:3] != _RAISED:
            return None
        kind, _, words = part[3].partition(":")
        names = re.findall(r"'\w+'", words) if kind in _ABOUT_NAMES else []
        return [*part[:3], " ".join([kind, *names]), {}]

    return result_codec.decode(packing.changed(result_codec.encode(result), change))


def harness(file: Path, scope: dict[str, Any], is_built: bool = False) -> str:
    """A digest of the exercise's Python file, and of the modules of this package that it uses.

    For an exercise in C++ or CUDA, the sources in its folder count too. White space does not
    count, nor how private names are spelt: each counts as its place among them.
    """
    files = {Path(file)}
    if is_built:
        files |= {path for path in Path(file).parent.iterdir() if path.suffix in _BUILT}
    waiting = [scope]
    while waiting:
        for value in waiting.pop().values():
            module = _module_of(value)
            if module and (path := Path(str(module.__file__))) not in files:
                files.add(path)
                waiting.append(vars(module))
    texts = [_essence(path.read_text(encoding="utf-8")) for path in sorted(files)]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


def _essence(text: str) -> str:
    places: dict[str, str] = {}
    text = _PRIVATE.sub(lambda name: places.setdefault(name[0], f"_{len(places)}"), text)
    return "".join(text.split())


def _module_of(value) -> types.ModuleType | None:
    """The module of this package that a value is, or in which it was defined."""
    name = value.__name__ if isinstance(value, types.ModuleType) else None
    name = name or getattr(value, "__module__", None)
    own = isinstance(name, str) and name.startswith("lessons_content.")
    module = sys.modules.get(name) if own and name else None
    return None if module is None or module.__name__.startswith(_ENGINE) else module
