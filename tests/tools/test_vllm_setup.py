"""Machine code for other cards is taken out of a library."""

import struct

import pytest

from tools.bench.vllm_setup import FATBIN, keep_card


def fatbin(*entries):
    """Of entries as `ELF 80 a`: the card, and a letter that is the code."""
    whole = b""
    for kind, card, letter in map(str.split, entries):
        about = struct.pack("<HHIQ", {"PTX": 1, "ELF": 2}[kind], 1, 64, 8) + bytes(12)
        whole += (about + struct.pack("<I", int(card))).ljust(64, b"\0") + letter.encode() * 8
    return FATBIN + struct.pack("<Q", len(whole)) + whole


@pytest.mark.parametrize(
    ("fatbins", "letters"),
    [
        ([["ELF 80 a", "ELF 90 b", "ELF 100 c", "PTX 90 d"]], "b"),
        # Older PTX can be compiled; code of another generation cannot run.
        ([["ELF 80 a", "PTX 75 b"], ["ELF 100 c"], ["ELF 90 d"]], "bd"),
    ],
)
def test_each_fatbin_keeps_what_fits_the_card_best(fatbins, letters):
    library = bytearray(b"x" * 9 + b"".join(fatbin(*each) for each in fatbins) + b"x")
    size = len(library)
    keep_card(library)
    assert len(library) == size
    assert "".join(each for each in "abcd" if each.encode() * 8 in library) == letters
