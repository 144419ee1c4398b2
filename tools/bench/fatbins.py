"""Takes the machine code for other cards out of a shared library with CUDA kernels.

A library keeps its kernels in containers, "fatbins". Each has an entry for each kind of card:
machine code (ELF), or PTX, which the driver can compile. What a card never loads is
overwritten with zeros. The library keeps its size and its layout, and zeros compress to
nothing.
"""

import struct
from dataclasses import dataclass

MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2


@dataclass(frozen=True)
class Entry:
    """kind: PTX or ELF. card: 90 for sm_90. begin, end: of its code, in bytes."""

    kind: int
    card: int
    begin: int
    end: int

    def runs_on(self, card: int) -> bool:
        """ELF runs on cards of its own generation, PTX on all later ones."""
        return self.card <= card and (self.kind == PTX or self.card // 10 == card // 10)


def entries(library: bytes | bytearray, start: int) -> list[Entry]:
    """The entries of the fatbin at `start`; none if no fatbin is there."""
    if start + 16 > len(library):
        return []
    version, header, size = struct.unpack_from("<HHQ", library, start + 4)
    found, at, end = [], start + header, start + header + size
    if (version, header) != (1, 16) or end > len(library):
        return []
    while at < end:
        if at + 32 > end:
            return []
        kind, _, header, size = struct.unpack_from("<HHIQ", library, at)
        (card,) = struct.unpack_from("<I", library, at + 28)
        if kind not in (PTX, ELF) or not 32 <= header <= 4096 or at + header + size > end:
            return []
        found.append(Entry(kind, card, at + header, at + header + size))
        at += header + size
    return found


def keep_card(library: bytearray, card: int = 90) -> int:
    """Zeroes all code that this card would not load. Returns how many bytes remain.

    Of each fatbin, the card's own machine code stays (sm_90 and sm_90a have the same number),
    or else what fits best.
    """
    at = remain = 0
    while (at := library.find(MAGIC, at)) >= 0:
        found = entries(library, at)
        fits = [(entry.kind, entry.card) for entry in found if entry.runs_on(card)]
        for entry in found:
            if fits and (entry.kind, entry.card) == max(fits):
                remain += entry.end - entry.begin
            else:
                library[entry.begin : entry.end] = bytes(entry.end - entry.begin)
        at = found[-1].end if found else at + len(MAGIC)
    return remain
