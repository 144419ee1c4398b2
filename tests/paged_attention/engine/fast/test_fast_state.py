"""What the device knows of all sequences, and the parts that make an engine fast."""

from types import SimpleNamespace

import pytest
import torch

from paged_attention.engine import fast
from paged_attention.engine.fast import FastParts, fast_engine, state
from paged_attention.engine.fast.ahead import PENDING, AheadEngine
from paged_attention.engine.fast.sampler import (
    NOT_FINITE,
    draw_tokens,
    draw_where_wanted,
    likeliest_tokens,
    sample_all,
)
from paged_attention.engine.fast.sizes import smallest_that_fits
from paged_attention.engine.fast.state import PADDING, SentTable, StepState
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.sampler import sample
from paged_attention.engine.served import UnsupportedModelError

CPU, META = torch.device("cpu"), torch.device("meta")
NAMES = (
    "last_tokens",
    "lengths",
    "rows",
    "tokens",
    "positions",
    "slots",
    "context_lens",
    "block_table",
)


@pytest.fixture
def no_kernels(monkeypatch):
    monkeypatch.setattr(state, "step_kernels", lambda target: f"kernels for {target}")


# ---- The table


def test_a_row_that_is_cleared_is_free_for_another_sequence():
    table = SentTable(3, 4, CPU)
    assert table.free_rows == [2, 1, 0]
    row = table.free_rows.pop()
    table.write(row, 0, [5, 6])
    table.clear(row)
    assert table.free_rows == [2, 1, 0] and table.cpu[row].tolist() == [-1] * 4


def test_only_what_has_changed_is_sent():
    table = SentTable(3, 5, CPU)
    table.write(2, 1, [5, 6])
    table.send()
    table.on_device[2, 1] = 99
    table.write(0, 3, [7])
    table.send()
    assert table.cpu.tolist() == [[-1, -1, -1, 7, -1], [-1] * 5, [-1, 5, 6, -1, -1]]
    assert table.on_device.tolist() == [[-1, -1, -1, 7, -1], [-1] * 5, [-1, 99, 6, -1, -1]]


def test_the_table_is_where_the_pool_is():
    assert SentTable(3, 4, META).on_device.device == META
    assert SentTable(3, 4, META).cpu.device == CPU


# ---- The state


def test_at_first_no_place_has_a_sequence_and_nothing_would_be_written(no_kernels):
    table = torch.full((3, 2), 7, dtype=torch.int32)
    own = StepState(table, 4, "fast")
    assert own.kernels == "kernels for fast"
    assert own.rows.tolist() == [-1] * 3 and own.slots.tolist() == [-1] * 3
    assert own.last_tokens.tolist() == [0] * 4  # one for padding
    for name in ("lengths", "tokens", "positions", "context_lens"):
        assert getattr(own, name).tolist() == [0] * 3, name
    assert own.block_table.tolist() == [[0, 0]] * 3 and own.table is table


def test_all_of_it_is_where_the_table_is(no_kernels):
    own = StepState(torch.empty(3, 2, dtype=torch.int32, device=META), 4, "gpu")
    assert {getattr(own, name).device for name in NAMES} == {META}
    dtypes = [getattr(own, name).dtype for name in NAMES]
    long, short = torch.int64, torch.int32
    assert dtypes == [long, short, short, long, long, long, short, short]


def test_a_sequences_next_token_is_noted_by_its_row(no_kernels):
    own = StepState(torch.zeros(3, 2, dtype=torch.int32), 4, "fast")
    own.choose(torch.tensor([2, 0], dtype=torch.int32), torch.tensor([7, 0]))
    assert own.last_tokens.tolist() == [0, 0, 7, 0]
    own.choose(torch.tensor([PADDING, 1]), torch.tensor([9, -1]))
    assert own.last_tokens.tolist() == [0, 0, 7, 9]


def test_the_device_moves_a_batch_on_from_what_it_remembers():
    """Two sequences in the order of the batch, and padding after them."""
    table = torch.arange(15, dtype=torch.int32).view(3, 5)
    own = StepState(table, 4, "fast")
    own.remember([2, 0], [5, 3])
    own.choose(torch.tensor([2, 0]), torch.tensor([70, 71]))
    own.set_rows([2, 0], 3)
    assert own.rows.tolist() == [2, 0, PADDING]
    own.advance(3)
    assert own.tokens.tolist() == [70, 71, 0]
    assert own.positions.tolist() == [5, 3, 0]
    assert own.slots.tolist() == [11 * 4 + 1, 0 * 4 + 3, -1]
    assert own.context_lens.tolist() == [6, 4, 0]
    assert own.block_table[0, :2].tolist() == [10, 11] and own.block_table[1, 0] == 0
    own.set_rows([0], 1)
    own.advance(1)
    assert own.rows.tolist() == [0, 0, PADDING]  # what is past the size stays
    assert own.slots.tolist() == [1 * 4 + 0, 0 * 4 + 3, -1]
    assert own.lengths.tolist() == [5, 0, 6]


def test_the_host_can_write_a_batch_in_place_of_the_device():
    table = torch.arange(15, dtype=torch.int32).view(3, 5)
    own = StepState(table, 4, "fast")
    for name in ("tokens", "positions", "context_lens", "slots"):
        getattr(own, name).fill_(99)
    own.fill([2], [70], [6], 2)
    assert own.tokens.tolist() == [70, 0, 99]
    assert own.positions.tolist() == [5, 0, 99]
    assert own.context_lens.tolist() == [6, 0, 99]
    assert own.slots.tolist() == [11 * 4 + 1, -1, 99]
    assert own.block_table[0].tolist() == table[2].tolist()


# ---- Tokens


def test_what_is_no_token_is_a_negative_number():
    """So it is never mistaken for a token."""
    assert PENDING < 0 and NOT_FINITE < 0 and PADDING == -1


def test_likeliest_tokens_are_those_of_their_rows():
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 1.0], [torch.nan, 0.0, 1.0]])
    assert likeliest_tokens(logits).tolist() == [1, 0, NOT_FINITE]


def test_where_none_is_drawn_the_likeliest_are_given_back_as_they_are():
    likeliest = torch.tensor([4, 5])
    params = [SamplingParams(temperature=0.0)] * 2
    assert draw_where_wanted(likeliest, torch.zeros(2, 9), params, [1, 2]) is likeliest


def test_each_row_gets_the_token_that_it_gets_alone():
    """Rows that draw, between others that do not. A row without a number has no token."""
    logits = torch.tensor([[1.0, 0.9, 0.8, 0.7, 0.6, 0.5], [0.5, 0.6, 0.9, 0.1, 0.2, 0.9]])
    logits = torch.cat([logits, logits, torch.full((1, 6), torch.nan)])
    params = [
        SamplingParams(temperature=0.9, seed=1),
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.7, top_p=0.6, seed=-5),
        SamplingParams(temperature=2.0, top_k=2, seed=2**64 - 1),
        SamplingParams(temperature=1.0),
    ]
    tokens = set()
    for position in range(40):
        positions = [position + row for row in range(5)]
        found = sample_all(logits, params, positions).tolist()
        for row in (0, 2, 3):
            assert found[row] == sample(logits[row], params[row], positions[row])
        assert found[1] in (2, 5) and found[4] == NOT_FINITE
        tokens.add(found[0])
    assert tokens == set(range(6))


def test_tokens_are_drawn_where_the_logits_are():
    numbers = torch.empty(3, dtype=torch.float64, device=META)
    logits, top_k = torch.empty(3, 5, device=META), torch.ones(3, device=META).long()
    tokens = draw_tokens(logits, numbers, top_k, numbers, numbers)
    assert (tokens.shape, tokens.device) == ((3,), META)


# ---- Sizes


@pytest.mark.parametrize(
    ("num_seqs", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 9)]
)
def test_a_batch_runs_in_the_smallest_size_with_room_or_in_its_own(num_seqs, size):
    assert smallest_that_fits(num_seqs, [8, 1, 2, 4]) == size


# ---- Parts


def test_all_parts_are_in_if_none_is_left_out():
    own = FastParts()
    assert [own.layers, own.graphs, own.state, own.plan, own.sampling, own.ahead] == [True] * 6


@pytest.mark.parametrize(("state", "sampling"), [(True, False), (False, True), (False, False)])
def test_a_host_cannot_be_ahead_without_tokens_on_the_device(state, sampling):
    with pytest.raises(ValueError, match="ahead needs state and sampling"):
        FastParts(state=state, sampling=sampling)
    assert not FastParts(state=state, sampling=sampling, ahead=False).ahead


def test_with_no_part_all_are_out():
    own = FastParts.none()
    assert [own.layers, own.graphs, own.state, own.plan, own.sampling, own.ahead] == [
        False
    ] * 6


# ---- The engine


class Engine:
    """A stand-in for the engine: notes its options."""

    def __init__(self, model, **options):
        self.options = options
        self.manager = SimpleNamespace(block_table=torch.zeros(9, 2))
        self.runner = "lesson 08's"
        self.sample = self.are_finite = "lesson 08's"


class Ahead(Engine):
    """A stand-in for AheadEngine."""


@pytest.fixture
def stand_ins(monkeypatch):
    monkeypatch.setattr(fast, "Engine", Engine)
    monkeypatch.setattr(fast, "AheadEngine", Ahead)
    monkeypatch.setattr(fast, "FastRunner", lambda *given: given)


MODEL = SimpleNamespace(dtype=torch.float16)


def test_an_engine_gets_the_options_the_parts_and_the_sizes(stand_ins):
    own = fast_engine(MODEL, sizes=[9, 1], kv_dtype="fp8", token_budget=5)
    assert type(own) is Ahead
    assert own.options == dict(kv_dtype="fp8", token_budget=5, path="batched")
    assert own.runner == ("lesson 08's", FastParts(), [9, 1])


def test_a_path_may_be_named_though_it_has_no_effect(stand_ins):
    assert fast_engine(MODEL, path="gather").options == dict(kv_dtype=None, path="gather")


@pytest.mark.parametrize(("sizes", "recorded"), [(None, [1, 2, 4, 8, 9]), ([], [])], ids=str)
def test_the_sizes_are_chosen_if_none_are_given(stand_ins, sizes, recorded):
    assert fast_engine(MODEL, sizes=sizes).runner[2] == recorded


@pytest.mark.parametrize("size", [0, 10])
def test_a_size_that_no_batch_can_have_is_refused(stand_ins, size):
    with pytest.raises(ValueError, match=r"sizes must be 1 to 9 \(max_num_seqs\), not \[3, "):
        fast_engine(MODEL, sizes=[3, size])


def test_other_numbers_than_the_kernels_take_are_refused(stand_ins):
    with pytest.raises(UnsupportedModelError, match="float64; the fast engine runs torch.fl"):
        fast_engine(SimpleNamespace(dtype=torch.float64))


def test_a_device_that_samples_gives_tokens_instead_of_logits(stand_ins):
    own = fast_engine(MODEL, FastParts(ahead=False))
    assert type(own) is Engine
    token = own.sample(torch.tensor(7), None, 3)
    assert token == 7 and type(token) is int
    assert own.are_finite(torch.tensor([3, NOT_FINITE, 0])) == [True, False, True]


def test_a_host_that_samples_uses_lesson_08s_functions(stand_ins):
    own = fast_engine(MODEL, FastParts(sampling=False, ahead=False))
    assert own.sample == own.are_finite == "lesson 08's"


def test_at_first_no_step_is_in_flight():
    assert AheadEngine.in_flight is None


def test_the_package_offers_the_engine_its_parts_and_its_sizes():
    assert set(fast.__all__) == {"FastParts", "fast_engine", "graph_sizes"}
