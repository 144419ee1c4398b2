"""Machine code for other cards is taken out of a library."""

import struct

from tools.bench.fatbins import ELF, MAGIC, PTX, keep_card


def entry(kind, card, code):
    about = struct.pack("<HHIQ", kind, 1, 64, len(code)) + bytes(12) + struct.pack("<I", card)
    return about.ljust(64, b"\0") + code


def fatbin(*entries):
    whole = b"".join(entries)
    return MAGIC + struct.pack("<HHQ", 1, 16, len(whole)) + whole


def kept(library):
    """The letters that remain."""
    library = bytearray(library)
    size = len(library)
    remain = keep_card(library)
    assert len(library) == size
    found = [letter for letter in "abcd" if letter.encode() * 8 in library]
    assert remain == 8 * len(found)
    return "".join(found)


def test_a_cards_own_code_remains_and_nothing_else():
    many = [
        (ELF, 80, b"a" * 8),
        (ELF, 90, b"b" * 8),
        (ELF, 100, b"c" * 8),
        (PTX, 90, b"d" * 8),
    ]
    assert kept(b"x" * 100 + fatbin(*(entry(*each) for each in many)) + b"x") == "b"


def test_each_fatbin_keeps_what_fits_best():
    """Older PTX can be compiled; code of another generation cannot run."""
    older = fatbin(entry(ELF, 80, b"a" * 8), entry(PTX, 75, b"b" * 8))
    newer = fatbin(entry(ELF, 100, b"c" * 8))
    assert kept(older + newer + fatbin(entry(ELF, 90, b"d" * 8))) == "bd"


def test_bytes_that_only_look_like_a_fatbin_are_left():
    for library in (MAGIC + b"a" * 40, fatbin(entry(7, 90, b"a" * 40)), b"a" + MAGIC):
        changed = bytearray(library)
        assert keep_card(changed) == 0 and changed == library
