"""The recorded result of each form of a mistake on each visible case.

With them a mistake is named at once, without trying hundreds of forms. This package's command
writes one file for each exercise. A record counts only for the text and the exercise that it
was made with.
"""

import base64
import functools
import hashlib
import io
import json
import re
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lessons_lib.checks import Raised, result_codec

_RAISED = ["course", Raised.__module__, "Raised"]
# Modules that read the mistakes. They do not change the mistakes' results.
_ENGINE = ("lessons_content.mistakes.", "lessons_content.exercises.exercise")
# Attributes of a result that is a text. A learner reads them, but no check compares them.
_BUILT = {".cpp", ".cu", ".cuh", ".h"}
_SHOWN_ALONE = {"where", "message"}
FOLDER = Path(__file__).parent / "records"
# replaces a result that depends on rounding; no encoded result is an empty dictionary
HANGS: dict = {}


class Records:
    """The records of one exercise; empty if the exercise has changed since.

    They are in a zip file, because a check reads only a few parts of it: "head", "forms" and
    each case's different results, one a line, under the case's number. All parts are JSON.

    made_with: a digest of the exercise.
    source: a digest of the texts that the forms were made from.
    named: (slug, number of the form, its row) for each different row, in the order in which
        mistakes are compared.
    messages: by slug, for all mistakes.
    versions: of Python and PyTorch. Other versions may give errors other words.
    """

    def __init__(self, archive: zipfile.ZipFile | None = None):
        head = json.loads(archive.read("head")) if archive else {}
        self._archive = archive
        self.made_with, self.source = head.get("made_with", ""), head.get("source", "")
        self.named, self.messages = head.get("named", []), head.get("messages", {})
        self.versions = head.get("versions", "")
        self._results: dict[int, list[str]] = {}
        self._decoded: dict[tuple[int, int], Any] = {}

    @functools.cached_property
    def forms(self) -> dict[str, list[int]]:
        """The row of each text, by the text's key: the number of its result on each case."""
        return json.loads(self._archive.read("forms")) if self._archive else {}

    def results(self, number: int) -> list[str]:
        """The different results of a case, encoded."""
        if number not in self._results:
            assert self._archive is not None  # otherwise there is no row to ask about
            self._results[number] = self._archive.read(str(number)).decode().split("\n")
        return self._results[number]

    def find(self, text: str, number: int) -> tuple[int, Any] | None:
        """(number, result) of a text on a case. None if nothing is recorded."""
        row = self.forms.get(key(text))
        return None if row is None else self.at(row, number)

    def at(self, row: list[int], number: int) -> tuple[int, Any] | None:
        if number >= len(row):
            return None
        place = number, row[number]
        if place not in self._decoded:
            encoded = json.loads(self.results(number)[row[number]])
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
            json.loads(self.results(number)[place])
            for number, place in enumerate(self.forms[key(text)])
        ]


def key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_of(exercise_id: str) -> Path:
    return FOLDER / f"{exercise_id}.zip"


def read(exercise_id: str, made_with: str) -> Records:
    """The records in the exercise's file, if they were made with this (see `harness`)."""
    try:
        # Read into memory, because the file may be replaced meanwhile.
        found = Records(zipfile.ZipFile(io.BytesIO(file_of(exercise_id).read_bytes())))
        if found.made_with == made_with:
            return found
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        pass  # there is no such file, or it is incomplete
    return Records()


def write(
    exercise_id: str,
    made_with: str,
    source: str,
    recorded: dict[str, list],
    named: list[tuple[str, int, str]],
    messages: dict[str, str],
):
    """Writes the file of an exercise.

    recorded: for each text, its encoded result on each case, or HANGS.
    named: (slug, number of the form, its text), in the order in which mistakes are compared.
    messages: of all mistakes.
    """
    num_cases = len(next(iter(recorded.values())))
    places: list[dict[str, int]] = [{} for _ in range(num_cases)]
    forms = {
        key(text): [
            places[number].setdefault(json.dumps(result), len(places[number]))
            for number, result in enumerate(given)
        ]
        for text, given in recorded.items()
    }
    rows: dict[str, list] = {}
    for slug, number, text in named:
        row = forms[key(text)]
        is_whole = HANGS not in recorded[text]
        rows.setdefault(repr(row) if is_whole else text, [slug, number, row])
    data = {
        "made_with": made_with,
        "source": source,
        "named": [*rows.values()],
        "messages": messages,
        "versions": versions(),
    }
    members = {"head": json.dumps(data), "forms": json.dumps(forms)}
    members |= {str(number): "\n".join(different) for number, different in enumerate(places)}
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in members.items():
            # ZipInfo's own date, so that equal records make equal files.
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED, 9)
    FOLDER.mkdir(exist_ok=True)
    file_of(exercise_id).write_bytes(written.getvalue())


def coarse(encoded):
    """An encoded result that packs better: a float of a tensor has 16 bits, because checks
    compare it to 1e-4 (tensors.py), and an error has no line.
    """
    if not isinstance(encoded, list | dict):
        return encoded
    if isinstance(encoded, dict):
        return {name: coarse(part) for name, part in encoded.items()}
    if encoded[:1] == ["course"] and isinstance(encoded[3], str):
        parts = {name: part for name, part in encoded[4].items() if name not in _SHOWN_ALONE}
        return [*encoded[:4], parts]
    if encoded[:2] == ["tensor", "torch.float32"]:
        bits = np.frombuffer(base64.b64decode(encoded[3]), np.uint32)
        shorter = (bits + np.uint32(1 << 6)) >> np.uint32(7) << np.uint32(7)
        # Not NaN and infinity, nor the largest numbers, which would become infinite.
        is_finite = [np.isfinite(each.view(np.float32)) for each in (bits, shorter)]
        bits = np.where(np.logical_and(*is_finite), shorter, bits)
        text = base64.b64encode(bits.tobytes()).decode()
        return [*encoded[:3], text]
    return [coarse(part) for part in encoded]


def versions() -> str:
    python = ".".join(map(str, sys.version_info[:2]))
    return f"Python {python}, PyTorch {torch.__version__}"


_ABOUT_NAMES = ("NameError", "UnboundLocalError", "AttributeError")


def without_words(result):
    """The result, in which errors have their types and no words.

    An error about a name keeps the names in quotes, because no version changes them.
    """

    def walk(encoded):
        if isinstance(encoded, dict):
            return {name: walk(part) for name, part in encoded.items()}
        if not isinstance(encoded, list):
            return encoded
        if encoded[:3] == _RAISED:
            kind, _, words = encoded[3].partition(":")
            names = re.findall(r"'\w+'", words) if kind in _ABOUT_NAMES else []
            return [*encoded[:3], " ".join([kind, *names]), {}]
        return [walk(part) for part in encoded]

    return result_codec.decode(walk(result_codec.encode(result)))


def harness(file: Path, scope: dict[str, Any], is_built: bool = False) -> str:
    """A digest of the exercise's Python file, and of the modules of this package that it uses.

    For an exercise in C++ or CUDA, the sources in its folder count too. White space does not
    count.
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
    texts = ["".join(path.read_text(encoding="utf-8").split()) for path in sorted(files)]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


def _module_of(value) -> types.ModuleType | None:
    """The module of this package that a value is, or in which it was defined."""
    name = value.__name__ if isinstance(value, types.ModuleType) else None
    name = name or getattr(value, "__module__", None)
    own = isinstance(name, str) and name.startswith("lessons_content.")
    module = sys.modules.get(name) if own and name else None
    return None if module is None or module.__name__.startswith(_ENGINE) else module
