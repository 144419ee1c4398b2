"""What each path of the engine asks for: groups, kernels, devices, and who may take it."""

import sys

import pytest
import torch
from test_engine_faults import BLOCK_SIZE, metadata

from paged_attention.engine import faults, paths
from paged_attention.engine.faults import each_alone, plant
from paged_attention.metadata import BatchMetadata
from paged_attention.rungs import Shape

NUM_BLOCKS = 12
MIXED = metadata(
    [3, 1, 1, 10, 1],
    [13, 8, 17, 10, 1],
    [[1, 2, -1], [3, -1, -1], [4, 5, 6], [7, 8, -1], [0, -1, -1]],
)
HOPPER, AMPERE, BLACKWELL = (9, 0), (8, 9), (10, 0)


def inputs(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shape = NUM_BLOCKS, BLOCK_SIZE, 2, 16
    caches = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    return torch.randn(16, 4, 16, generator=generator).to(dtype), *caches


def kv_lens(given: BatchMetadata) -> list[int]:
    return given.seq_lens_kv.tolist()


def planted(name: str):
    """The attention of an engine with this fault."""

    def path(given):
        engine = type("Engine", (), {"runner": type("Runner", (), {})})
        plant(engine, name)
        return engine.runner.plan(given)

    return path


@pytest.mark.parametrize(
    "path, given",
    [
        (paths.gather, MIXED),
        (paths.blockwise, MIXED),
        (paths.batched, metadata([1] * 16, [9] * 16, [[0, 1]] * 16)),
        (lambda given: lambda *tensors: each_alone(*tensors, given), MIXED),
        (planted("KV head = h % num_kv_heads"), MIXED),
    ],
    ids=["gather", "blockwise", "batched", "each alone", "wrong heads"],
)
def test_tensors_are_made_where_those_of_the_batch_are(monkeypatch, path, given):
    monkeypatch.setattr(faults, "attn_paged_torch", each_alone)
    tensors = inputs()
    expected = path(given)(*tensors)
    with torch.device("meta"):  # what is made without a device cannot be read
        assert torch.equal(path(given)(*tensors), expected)


def test_sequences_go_together_up_to_the_next_power_of_two(monkeypatch):
    lengths, groups = [1, 2, 3, 4, 5, 8, 9, 16, 17], []
    monkeypatch.setattr(paths, "Padded", lambda part: groups.append(kv_lens(part)))
    paths.batched(metadata([1] * 9, lengths, [[0, 1, 2]] * 9))
    assert groups == [[1], [2], [3, 4], [5, 8], [9, 16], [17]]


def test_a_query_has_as_many_parts_as_blocks():
    counts = []

    def dispatch(q, num_blocks):
        counts.append(num_blocks.tolist())
        return q.repeat_interleave(num_blocks, dim=0)

    paths.blockwise(MIXED, dispatch=dispatch)(*inputs())
    assert counts == [[2, 2, 2, 1, 3, *[1] * 8, 2, 2, 1]]


def test_one_group_is_planned_as_it_is_and_others_apart():
    seen = []

    def path(kind):
        def plan(part):
            seen.append((kind, part))
            return lambda q, k_cache, v_cache: q

        return plan

    def split(given):
        seen.clear()
        attend = paths.split(given, path("one"), path("chunk"), group_of=lambda kv_len: 0)
        q = torch.arange(64.0).view(-1, 1, 1)[: len(given.slot_mapping)]
        assert torch.equal(attend(q, q, q), q)
        return [(kind, kv_lens(part)) for kind, part in seen]

    singles = metadata([1, 1], [3, 9], [[1, -1], [2, 3]])
    assert split(singles) == [("one", [3, 9])] and seen[0][1] is singles
    assert split(metadata([2, 9], [3, 9], [[1, -1], [2, 3]])) == [("chunk", [3, 9])]
    assert split(MIXED) == [("chunk", [13, 10]), ("one", [8, 17, 1])]


def test_a_part_is_where_the_batch_is():
    given = BatchMetadata(*(tensor.to("meta") for tensor in vars(MIXED).values()))
    rows, part = paths.part_of(given, [1, 4], MIXED.cu_seqlens_q.tolist())
    assert {each.device.type for each in (rows, *vars(part).values())} == {"meta"}


class Planned:
    """A stand-in for PagedDecode and PagedPrefill. It keeps what it was asked for."""

    def __init__(self, *numbers, **sizes):
        self.numbers, self.sizes = numbers, sizes
        Planned.last = self

    def __call__(self, q, k_cache, v_cache, table):
        return q


@pytest.mark.parametrize("target", [None, "fast", "checked"])
def test_the_kernels_are_planned_for_the_batch_and_its_target(monkeypatch, target):
    asked = []

    def best(shape, place):
        asked.append((shape, place))
        return 5

    monkeypatch.setattr(paths, "PagedDecode", Planned)
    monkeypatch.setattr(paths, "PagedPrefill", Planned)
    monkeypatch.setattr(paths, "best_prefill_rung", best)
    tensors = inputs(torch.float16)
    sizes = dict(num_q_heads=4, num_kv_heads=2, head_size=16, block_size=BLOCK_SIZE)
    singles = metadata([1] * 16, [9] * 16, [[0, 1]] * 16)
    paths.fast(singles, target)(*tensors)
    assert Planned.last.numbers == (7, singles.seq_lens_kv)
    assert Planned.last.sizes == sizes | {"dtype": torch.float16, "target": target}
    chunk = metadata([16], [16], [[0, 1]])
    paths.fast(chunk, target)(*tensors)
    assert Planned.last.numbers == (5, chunk.cu_seqlens_q, chunk.seq_lens_kv)
    assert Planned.last.sizes == sizes | {"dtype": torch.float16, "target": target}
    expected = [(Shape(torch.float16, 16, 2, BLOCK_SIZE), target or "fast")]
    assert repr(asked) == repr(expected)  # whole numbers too


@pytest.mark.parametrize(
    "kind, capability, expected",
    [
        ("cuda", HOPPER, True),
        ("cuda", AMPERE, False),
        ("cuda", BLACKWELL, False),
        ("cpu", HOPPER, False),
    ],
)
def test_which_cards_are_hoppers(monkeypatch, kind, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert paths.is_hopper(torch.device(kind)) == expected


@pytest.mark.parametrize(
    "hopper, length, gathers", [(True, 16, True), (True, 15, False), (False, 16, False)]
)
def test_only_a_long_prompt_on_a_hopper_is_gathered(monkeypatch, hopper, length, gathers):
    gathered = []
    monkeypatch.setattr(paths, "PagedPrefill", Planned)
    monkeypatch.setattr(paths, "best_prefill_rung", lambda shape, place: 5)
    monkeypatch.setattr(paths, "gather", gathered.append)
    monkeypatch.setattr(paths, "is_hopper", lambda device: hopper)
    monkeypatch.setattr(paths, "LONG_PROMPT", 16)
    q, k_cache, _ = inputs(torch.float16)
    given = metadata([length], [length], [[0, 1]])
    paths.FastPrefill(given).plan(q[:length], k_cache)
    assert gathered == [given] * gathers


def test_a_path_that_there_is_not_or_not_here_is_refused(monkeypatch):
    assert paths.find_path("gather") is paths.gather
    with pytest.raises(ValueError, match="path must be one of gather, .*, not 'quick'"):
        paths.find_path("quick")
    monkeypatch.setitem(paths.NEEDS, "fused", lambda: "a GPU")
    with pytest.raises(RuntimeError, match="path 'fused' needs a GPU"):
        paths.find_path("fused")
    monkeypatch.setitem(paths.NEEDS, "fused", lambda: None)
    assert paths.find_path("fused") is paths.fused


def test_the_warning_of_a_card_that_cannot_is_at_the_line_that_makes_the_engine(monkeypatch):
    def refuse(*_):
        raise ValueError("rung 7 needs a newer card")

    def engine():
        return paths.choose_path(Shape(torch.float16, 128, 2, 16), torch.device("cuda"))

    monkeypatch.setattr(paths, "check_card", refuse)
    with pytest.warns(UserWarning, match="rung 7 needs a newer card") as warned:
        line, chosen = line_of_here(), engine()
    assert chosen == "batched"
    assert (warned[0].filename, warned[0].lineno) == (__file__, line)


def line_of_here() -> int:
    return sys._getframe(1).f_lineno
