"""Machine code for other cards is taken out of a library."""

import struct

from tools.bench.vllm_setup import FATBIN, keep_card


def fatbin(*entries):
    """Of entries (1 for PTX or 2 for ELF, the card, a letter that is the code)."""
    whole = b""
    for kind, card, letter in entries:
        about = struct.pack("<HHIQ", kind, 1, 64, 8) + bytes(12) + struct.pack("<I", card)
        whole += about.ljust(64, b"\0") + letter * 8
    return FATBIN + struct.pack("<Q", len(whole)) + whole


def test_each_fatbin_keeps_what_fits_the_card_best():
    """Older PTX can be compiled; code of another generation cannot run."""
    own = fatbin((2, 80, b"a"), (2, 90, b"b"), (2, 100, b"c"), (1, 90, b"d"))
    library = bytearray(
        b"x" + own + fatbin((2, 80, b"e"), (1, 75, b"f")) + fatbin((2, 100, b"g"))
    )
    size = len(library)
    keep_card(library)
    kept = [letter for letter in "abcdefg" if letter.encode() * 8 in library]
    assert (len(library), kept) == (size, ["b", "f"])
