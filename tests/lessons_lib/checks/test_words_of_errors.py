"""What a check says of an answer that raises: true, and with a line and names that help."""

import linecache

import pytest
import torch

from lessons_lib import checks

PREFILL = "def forward_prefill(layer, x, request_num_blocks, seq_ids, manager, attend):\n"


def answer(name, text, place="<cell>", **scope):
    """A function of a cell, whose lines Python finds."""
    linecache.cache[place] = (len(text), None, text.splitlines(True), place)
    scope["torch"] = torch
    exec(compile(text, place, "exec"), scope)
    return scope[name]


@pytest.mark.parametrize(
    "line, is_stub",
    [
        ("raise NotImplementedError('Exercise 3.5')", True),
        ("raise NotImplementedError('later')", True),
        ("return torch.nn.Module()(x)", False),
    ],
)
def test_pytorchs_not_implemented_is_no_stub(line, is_stub):
    """It said "is still the stub" of an answer that calls a layer without a `forward`."""
    result = checks.run("3.5", answer("forward_prefill", f"{PREFILL}    {line}\n"))
    assert (result.mistake == checks.NOT_ATTEMPTED) is is_stub
    assert ("still the stub" in result.message) is is_stub
    assert ("NotImplementedError: Module" in result.message) is not is_stub


def test_the_line_is_one_of_the_answer_and_not_of_another_cell():
    """It named the line of the other cell, without its text."""
    helper = answer("helper", "\n\ndef helper(n):\n    return n.missing\n", "<another cell>")
    text = "def blocks_needed(num_tokens, block_size):\n    return helper(num_tokens)\n"
    message = checks.run("0.1", answer("blocks_needed", text, helper=helper)).message
    assert "raised in line 2: `return helper(num_tokens)`" in message


@pytest.mark.parametrize(
    "line, has",
    [
        ("self.get(seq_id).lenght", "Sequence has: length\n"),
        (
            "self.block_manager.refcount(0) if self.get(seq_id) else 0",
            "BlockManager has: get_ref_count, increase_ref_count\n",
        ),
    ],
)
def test_a_name_that_an_object_lacks_comes_with_those_that_it_has(line, has):
    text = f"def append_token(self, seq_id):\n    return {line}\n"
    assert f"\n  {has}" in f"{checks.run('2.5', answer('append_token', text)).message}\n"


def test_an_object_that_cannot_be_looked_at_is_no_trouble():
    """Its parts cannot be listed, and the check goes on."""
    text = (
        "class Odd:\n    def __getattribute__(self, name): raise SystemExit\n\n"
        "def append_token(self, seq_id):\n"
        "    raise AttributeError('none', name='more', obj=Odd())\n"
    )
    message = checks.run("2.5", answer("append_token", text)).message
    assert "AttributeError: none" in message and " has: " not in message
