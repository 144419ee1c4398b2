"""The bug hunt's cases and its report, on a stand-in for the kernel."""

import contextlib
import re
from types import SimpleNamespace

import pytest
import torch

from lessons_lib.compiler_errors import CompileError
from lessons_lib.cuda_on_cpu.reports import KernelError
from paged_attention import bug_hunt
from paged_attention.bug_hunt import CASES, POISON, HuntCase, expected_output, hunt

MIXED = HuntCase("", (3, 0, 9), 4, 2, 8, 4, spare_entries=2)


def owned(tensors):
    """The slots that hold a token, as (block, place)."""
    size = tensors["k_cache"].shape[1]
    return [
        (tensors["block_table"][row, token // size].item(), token % size)
        for row, length in enumerate(tensors["context_lens"].tolist())
        for token in range(length)
    ]


@pytest.mark.parametrize("case", [MIXED, *CASES], ids=lambda case: case.title or "mixed")
def test_only_tokens_are_not_poison_and_no_two_share_a_slot(case):
    tensors = case.tensors()
    slots, size = owned(tensors), case.block_size
    num_needed = [-(-length // size) for length in case.context_lens]
    shape = (sum(num_needed) + 3, size, case.num_kv_heads, case.head_size)
    assert len(set(slots)) == len(slots) == sum(case.context_lens)
    for cache in (tensors["k_cache"], tensors["v_cache"]):
        assert cache.shape == shape and cache.dtype == torch.float32
        free = torch.ones(shape[:2], dtype=torch.bool)
        free[tuple(zip(*slots, strict=True))] = False
        assert (cache[free] == POISON).all() and cache[~free].abs().max() < 10
        assert free[-1].all()  # the last block is not used
    assert not torch.equal(tensors["k_cache"], tensors["v_cache"])
    table = tensors["block_table"]
    assert table.shape == (len(num_needed), max(num_needed) + case.spare_entries)
    assert all((table[row, count:] == -1).all() for row, count in enumerate(num_needed))
    assert tensors["q"].shape == (len(num_needed), case.num_q_heads, case.head_size)
    assert tensors["context_lens"].tolist() == list(case.context_lens)
    assert {table.dtype, tensors["context_lens"].dtype} == {torch.int32}
    again = case.tensors()
    assert all(torch.equal(each, again[name]) for name, each in tensors.items())


def test_blocks_are_scattered():
    table = HuntCase("", (40,)).tensors()["block_table"]
    assert table[0].tolist() != sorted(table[0].tolist())
    other = HuntCase("", (40,), num_q_heads=2).tensors()["block_table"]
    assert not torch.equal(table, other)


NUMBERS = {"one": 1, "two": 2, "four": 4}
WORDS = r"(\d[\d,]*|one|two|four)"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_title_says_what_is_in_the_case(case):
    def number(pattern, default):
        found = re.search(pattern.replace("N", WORDS), case.title)
        words = found and found[1].replace(",", "")
        return default if not found else NUMBERS.get(words) or int(words)

    assert len(case.context_lens) == number("N sequences", 1)
    if len(case.context_lens) == 1:
        assert case.context_lens == (number("N tokens?", None),)
    if "3 and 7 tokens" in case.title:
        assert case.context_lens == (3, 7)
    if "without a token" in case.title:
        assert case.context_lens[0] == 0 < case.context_lens[1]
    both = number("N heads of queries and of keys", None)
    assert case.num_kv_heads == (both or number("on N KV head", 1))
    if both or "query head" in case.title or "one head" in case.title:
        assert case.num_q_heads == (both or number("N query heads", 1))
    # where the title says nothing, blocks are small, and larger for long contexts
    block_size = 16 if max(case.context_lens) >= 300 else 4
    assert case.block_size == number("blocks of N", block_size)
    if case is not CASES[-1]:
        head_size = 1 if max(case.context_lens) > 10_000 else 8
        assert case.head_size == number("head of size N", head_size)


def test_the_cases_find_what_others_do_not():
    by_title = {case.title: case for case in CASES}
    assert len(by_title) == len(CASES) == 9
    # one of the cases has a table that is wider than its contexts, to show a wrong stride
    assert {case.spare_entries for case in CASES[:3]} == {0}
    assert CASES[3].num_q_heads == 2 and CASES[3].tensors()["block_table"].shape == (2, 3)
    assert CASES[4].context_lens == (0, 3)
    assert CASES[7].context_lens[0] * 4 < 46 * 1024  # it still fits shared memory
    last = CASES[8]
    blocks = [divmod(length, last.block_size) for length in last.context_lens]
    assert blocks == [(1, 0), (0, 1), (0, 0), (2, 1)] and last.head_size == 24
    assert last.tensors()["block_table"].shape == (4, 3 + 2)


def test_the_blocks_that_the_lesson_names_stay_the_same():
    tables = [case.tensors()["block_table"].tolist() for case in CASES[:5]]
    assert tables == [[[0]], [[1]], [[3, 2]], [[0, -1, -1], [3, 1, -1]], [[-1], [1]]]


def test_an_empty_context_gives_zeros():
    tensors = MIXED.tensors()
    out = expected_output(**tensors)
    assert out.dtype == torch.float64 and out.shape == (3, 4, 8)
    assert not out[1].any() and out[0].any() and out[2].any()
    tensors = HuntCase("", (0, 0)).tensors()
    assert not expected_output(**tensors).any()


def test_a_context_of_one_token_gives_its_value():
    tensors = HuntCase("", (1, 1), 2, 1).tensors()
    ((first, _), (second, _)) = owned(tensors)
    out = expected_output(**tensors)
    for row, block in enumerate((first, second)):
        for head in range(2):
            assert torch.equal(out[row, head], tensors["v_cache"][block, 0, 0].double())


def test_the_kernel_is_built_in_checked_mode_with_an_end(monkeypatch):
    seen = []

    def build(*texts, **words):
        seen.append((texts, words))
        return SimpleNamespace(options=lambda **words: seen.append(words))

    monkeypatch.setattr(bug_hunt, "build_cuda", build)
    bug_hunt.build_hunted("my text")
    (texts, words), options = seen
    assert texts[1] == "my text" and "struct" in texts[0] and len(texts) == 2
    assert words == dict(
        names=("paged_params.cuh", "your code"), target="checked", name="bug_hunt"
    )
    assert options == {"step_limit": 2_000_000}


@pytest.fixture
def kernel(monkeypatch):
    """A stand-in that gives what the reference gives, with what `wrong` adds to it.

    `read` has the accesses of a trace, and `error` what a launch raises.
    """
    made = SimpleNamespace(wrong=None, read=[], error=None, cases=0)

    traced = None

    @contextlib.contextmanager
    def trace(name):
        nonlocal traced
        assert name == "k_cache"
        traced = []
        yield traced
        traced = None

    library = SimpleNamespace(trace=trace)

    def attention(library, **tensors):
        assert library.trace is trace
        made.cases += 1
        if traced is not None:
            traced.extend(made.read)
        if made.error:
            raise made.error
        out = expected_output(**tensors).float()
        return out if made.wrong is None else made.wrong(out)

    monkeypatch.setattr(bug_hunt, "build_hunted", lambda source: library)
    monkeypatch.setattr(bug_hunt, "attn_paged_cuda", attention)
    monkeypatch.setattr(bug_hunt, "CASES", (HuntCase("a few", (3,)), MIXED))
    return made


def shown(capsys):
    hunt("my text")
    return capsys.readouterr().out


def test_a_kernel_that_is_right_passes_every_case(kernel, capsys):
    assert shown(capsys) == "1. a few: as the reference\n2. : as the reference\n"


@pytest.mark.parametrize("factor, is_right", [(1 + 8e-5, True), (1 + 1e-3, False)])
def test_numbers_are_compared_with_a_tolerance(kernel, monkeypatch, capsys, factor, is_right):
    monkeypatch.setattr(bug_hunt, "CASES", (HuntCase("", (1,), head_size=4096),))
    kernel.wrong = lambda out: out * factor
    assert ("wrong numbers" not in shown(capsys)) == is_right


@pytest.mark.parametrize("error, is_right", [(5e-5, True), (3e-4, False)])
def test_numbers_near_zero_may_differ_by_a_little(kernel, capsys, error, is_right):
    def wrong(out):
        empty = torch.zeros_like(out)
        empty[1:2] = error * (out[1:2] == 0)
        return out + empty

    kernel.wrong = wrong
    assert ("wrong numbers" not in shown(capsys)) == is_right


def test_the_hunt_ends_at_an_error_of_the_kernel(kernel, capsys):
    kernel.error = KernelError("thread 3 read outside")
    assert shown(capsys) == "1. a few: KernelError\n\nthread 3 read outside\n"
    assert kernel.cases == 1


def test_what_does_not_compile_is_said(monkeypatch, capsys):
    def build(source):
        raise CompileError("line 7: missing ;")

    monkeypatch.setattr(bug_hunt, "build_hunted", build)
    assert shown(capsys) == "It does not compile.\n\nline 7: missing ;\n"


def access(block, thread, index):
    return SimpleNamespace(block=(*block, 0), thread=thread, index=(*index, thread % 8))


def test_wrong_numbers_come_with_the_keys_that_were_read(kernel, capsys):
    def wrong(out):
        if len(out) > 1:
            out[2, 1], out[0, 3, 7] = torch.arange(8.0) / 4, 500.0
        return out

    kernel.wrong = wrong
    kernel.read = [
        access((0, 3), 9, (4, 0, 1)),
        access((0, 3), 1, (2, 0, 1)),
        access((0, 3), 2, (2, 0, 1)),
        access((0, 3), 3, (2, 1, 1)),
        access((2, 3), 0, (0, 0, 0)),
        access((0, 1), 0, (1, 0, 0)),
    ]
    first = expected_output(**MIXED.tensors())[0, 3, :3].tolist()
    numbers = ", ".join(f"{number:.3f}" for number in first)
    table = MIXED.tensors()["block_table"].tolist()
    lines = [
        "1. a few: as the reference",
        "2. : wrong numbers",
        "",
        "Wrong rows of out, as [sequence, head]: [0, 3], [2, 1]",
        f"out[0, 3] begins with {numbers}; the reference has {numbers}",
        "For it, these keys were read: k_cache[2, 0, 1], k_cache[2, 1, 1], k_cache[4, 0, 1]",
        f"The block table is {table}, with 4 tokens in a block",
    ]
    assert shown(capsys).splitlines() == lines


@pytest.mark.parametrize("num_rows, more", [(4, ""), (5, " and 1 more"), (9, " and 5 more")])
def test_only_the_first_keys_are_listed(kernel, capsys, num_rows, more):
    kernel.wrong = lambda out: out + 1
    kernel.read = [access((0, 0), n, (n, 0, 0)) for n in range(num_rows)]
    listed = ", ".join(f"k_cache[{n}, 0, 0]" for n in range(4))
    assert f"were read: {listed}{more}\n" in shown(capsys)
