"""Finds the learner's line for an address in machine code, by addr2line."""

import ctypes
import shutil
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class SourceLine:
    """A line of one of the texts: the text's name, the line's number from 1, and the line."""

    source: str
    number: int
    text: str

    def __str__(self):
        return f"{self.source}, line {self.number}: {self.text}".rstrip(": ")


def source_line(
    texts: dict[str, str], file: str | None, number: int | None
) -> SourceLine | None:
    """The line of `texts` that a compiler calls `file`, line `number`; None if not ours."""
    names = [name for name in texts if file and (file == name or file.endswith("/" + name))]
    if not names or not number:
        return None
    name = max(names, key=len)
    lines = texts[name].split("\n")
    return SourceLine(name, number, lines[number - 1].strip() if number <= len(lines) else "")


def look_up(
    library: str, offsets: list[int], texts: dict[str, str]
) -> list[SourceLine | None]:
    """The line in `texts` for each offset in `library`, or None.

    Inlined code has several lines, from the innermost function outwards. Our first line
    counts.
    offsets: each is just after an instruction.
    """
    found = []
    for frames in _frames(library, [offset - 1 for offset in offsets]):
        lines = (source_line(texts, file, number) for file, number in frames)
        found.append(next((line for line in lines if line), None))
    return found


def lines_at(addresses: set[int], texts: dict[str, str]) -> dict[int, SourceLine | None]:
    """The line in `texts` for each address of this process's machine code, or None."""
    by_library: dict[str, list[tuple[int, int]]] = {}
    lines: dict[int, SourceLine | None] = dict.fromkeys(addresses)
    for address in addresses:
        if place := offset_in_library(address):
            by_library.setdefault(place[0], []).append((address, place[1]))
    for library, places in by_library.items():
        found = look_up(library, [offset for _, offset in places], texts)
        lines |= zip([address for address, _ in places], found, strict=True)
    return lines


def _frames(library: str, addresses: list[int]) -> list[list[tuple[str, int]]]:
    """The (file, line) pairs of each address, the innermost function first."""
    hexadecimal = [f"{address:#x}" for address in addresses]
    if shutil.which("addr2line"):
        command = ["addr2line", "-i", "-a", "-e", library, *hexadecimal]
    elif shutil.which("llvm-symbolizer"):
        command = [
            "llvm-symbolizer",
            "--output-style=GNU",
            "--functions=none",
            "--inlines",
            "-a",
            f"--obj={library}",
            *hexadecimal,
        ]
    elif shutil.which("atos"):
        return [_read(_run(["atos", "-i", "-o", library, address])) for address in hexadecimal]
    else:
        return [[] for _ in addresses]
    answers: list[list[tuple[str, int]]] = []
    for line in _run(command):
        if line.startswith("0x"):  # with -a, an address comes before its lines
            answers.append([])
        elif answers:
            answers[-1] += _read([line])
    return answers if len(answers) == len(addresses) else [[] for _ in addresses]


def _run(command: list[str]) -> list[str]:
    try:
        return subprocess.run(
            command, capture_output=True, errors="replace", timeout=300
        ).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


def _read(lines: list[str]) -> list[tuple[str, int]]:
    """The (file, line) pairs in lines such as `/folder/your code:12 (discriminator 3)`, as
    addr2line prints them.

    On macOS, atos prints `kernel (in library.so) (your code:12)`.
    """
    frames = []
    for line in lines:
        if line.endswith(")") and " (in " in line:
            line = line.rpartition("(")[2].rstrip(")")
        file, _, number = line.partition(" (discriminator")[0].rpartition(":")
        if number.isdigit():
            frames.append((file, int(number)))
    return frames


class _Found(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def offset_in_library(address: int) -> tuple[str, int] | None:
    """The library that contains this address, and its distance from the library's start."""
    found = _Found()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Found)]
    if not dladdr(address, ctypes.byref(found)):
        return None
    return found.file.decode(errors="replace"), address - found.base
