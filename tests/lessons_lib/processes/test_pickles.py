"""A function of a notebook that travels in bytes is still from its cell."""

import linecache
import pickle
import traceback

import pytest

from lessons_processes import pickles

CELL = """\
def blocks_needed(num_tokens, block_size):
    def divided(by):
        return num_tokens / by

    return max(divided(by) for by in [block_size])


class Counter:
    def count(self):
        raise LookupError("nothing to count")
"""


@pytest.fixture
def cell():
    """The names of a cell in a notebook: its code has a file name, and there is no file."""
    names = {"__name__": "__main__"}
    place = "/tmp/ipykernel_7/3.py"
    linecache.cache[place] = (len(CELL), None, CELL.splitlines(True), place)
    exec(compile(CELL, place, "exec"), names)
    yield names
    del linecache.cache[place]


def quoted_lines(call, error: type) -> list[str]:
    with pytest.raises(error) as raised:
        call()
    return [frame.line for frame in traceback.extract_tb(raised.tb)[1:]]


def test_each_line_of_a_function_can_be_quoted(cell):
    answer = pickle.loads(pickles.dumps(cell["blocks_needed"]))
    assert answer(32, 16) == 2
    lines = quoted_lines(lambda: answer(32, 0), ZeroDivisionError)
    assert lines[-1] == "return num_tokens / by"
    assert lines[-3].startswith("return max(")


def test_a_line_of_a_method_can_be_quoted(cell):
    counter = pickle.loads(pickles.dumps(cell["Counter"]))()
    assert quoted_lines(counter.count, LookupError) == [
        'raise LookupError("nothing to count")'
    ]


def test_what_has_travelled_gives_the_same_bytes_again(cell):
    once = pickle.loads(pickles.dumps(cell["blocks_needed"]))
    assert pickles.dumps(once) == pickles.dumps(pickle.loads(pickles.dumps(once)))
