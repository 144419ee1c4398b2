"""The fast engine's parts one by one, each against its simple predecessor."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_attention.engine.fast.room import append_tokens
from paged_attention.engine.fast.sampler import NOT_FINITE, sample_all
from paged_attention.engine.fast.state import PADDING, SentTable, StepState
from paged_attention.engine.request import SamplingParams
from paged_attention.engine.sampler import sample
from paged_attention.kv_cache import PagedAttentionManager
from paged_attention.send import Arriving, send

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
INF, NAN = torch.inf, torch.nan

params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.01, 0.7, 1.0, 4.0]),
    top_k=st.none() | st.integers(1, 9),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.01]),
    seed=st.integers(-(2**63), 2**64 - 1),
)


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), own=st.lists(params, min_size=1, max_size=6))
def test_a_batch_gets_the_tokens_that_its_rows_get_alone(device, data, own):
    numbers = st.sampled_from([0.0, 0.5, 0.5, 1.25, -2.0, 3.0, -INF])
    rows = [
        [1.0, *data.draw(st.lists(numbers, min_size=6, max_size=6))] for _ in range(len(own))
    ]
    logits = torch.tensor(rows, device=device)
    positions = [data.draw(st.integers(0, 10**6)) for _ in own]
    before = logits.clone()
    tokens = sample_all(logits, own, positions).tolist()
    assert torch.equal(logits, before)
    for row, token, each, position in zip(logits, tokens, own, positions):
        if each.temperature == 0:  # of equal ones, any
            assert row[token] == row.max()
        else:
            assert token == sample(row, each, position)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [[NAN, 0, 1], [INF, 0, 1], [-INF] * 3, [NAN] * 3], ids=str)
def test_a_row_that_is_not_finite_has_no_token_and_harms_no_other(device, temperature, bad):
    logits = torch.tensor([[0.0, 9.0, 1.0], bad, [-INF, 0.0, -INF]], device=device)
    own = [SamplingParams(temperature=temperature, top_p=0.5)] * 3
    assert sample_all(logits, own, [3, 4, 5]).tolist() == [1, NOT_FINITE, 1]


def manager_with(num_blocks, block_size) -> PagedAttentionManager:
    return PagedAttentionManager(num_blocks, block_size, 1, 2, 4, 30)


@settings(max_examples=200, deadline=None)
@given(
    block_size=st.integers(1, 5),
    num_blocks=st.integers(1, 12),
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    fork=st.booleans(),
    appended=st.lists(
        st.tuples(st.integers(0, 3), st.integers(-1, 12)), min_size=1, max_size=6
    ),
)
def test_whole_blocks_are_the_room_that_single_tokens_are(
    block_size, num_blocks, lengths, fork, appended
):
    """The same blocks, rows, lengths and copies, or the same error, and then no change."""
    managers = [manager_with(num_blocks, block_size) for _ in range(2)]
    for manager in managers:
        manager.kv_cache.copy_(
            torch.arange(manager.kv_cache.numel()).view_as(manager.kv_cache)
        )
        for seq_id, length in enumerate(lengths):
            if manager.blocks_for(length) <= manager.block_manager.get_num_free_blocks():
                manager.add_sequence(seq_id, length)
        if fork and 0 in manager.sequences:
            manager.fork_sequence(0, 3)
    for seq_id, num_tokens in appended:
        seen = []
        for manager, append in zip(managers, (None, append_tokens)):
            try:
                if append is None:
                    manager.append_tokens([(seq_id, num_tokens)])
                else:
                    append(manager, [(seq_id, num_tokens)])
                seen.append("appended")
            except Exception as error:
                seen.append(type(error))
        assert seen[0] == seen[1]
        one, other = managers
        assert one.sequences == other.sequences
        assert torch.equal(one.block_table, other.block_table)
        assert one.block_manager.ref_counts == other.block_manager.ref_counts
        assert torch.equal(one.kv_cache, other.kv_cache)


@pytest.mark.parametrize("device", DEVICES)
def test_a_table_that_is_sent_once_a_step(device):
    table = SentTable(3, 4, torch.device(device))
    table.write(1, 0, [7, 8])
    table.write(1, 1, [9])
    table.write(2, 3, [5])
    assert (table.on_device == -1).all()
    table.send()
    assert table.on_device.tolist() == [[-1] * 4, [7, 9, -1, -1], [-1, -1, -1, 5]]
    assert torch.equal(table.on_device.cpu(), table.cpu)
    table.clear(1)
    table.write(1, 0, [3])
    table.send()
    table.send()
    assert table.cpu[1].tolist() == [3, -1, -1, -1] and table.on_device[1, 0] == 3


@settings(max_examples=40, deadline=None)
@given(data=st.data(), block_size=st.integers(1, 4), size=st.integers(1, 5))
def test_the_host_fills_a_step_as_the_device_advances_it(data, block_size, size):
    num_seqs = data.draw(st.integers(1, size))
    rows = data.draw(st.permutations(range(5)))[:num_seqs]
    lengths = [data.draw(st.integers(1, 8)) for _ in rows]
    tokens = [data.draw(st.integers(0, 99)) for _ in rows]
    table = torch.randperm(5 * 8).int().view(5, 8)
    states = [StepState(table, block_size, "fast") for _ in range(2)]
    states[0].fill(rows, tokens, lengths, size)
    states[1].remember(rows, [length - 1 for length in lengths])
    states[1].choose(torch.tensor(rows), torch.tensor(tokens))
    states[1].set_rows(rows, size)
    states[1].advance(size)
    for name in ("tokens", "positions", "slots", "context_lens"):
        of_host, of_device = (getattr(state, name)[:size].tolist() for state in states)
        assert of_host == of_device, name
    for place, length in enumerate(lengths):
        used = -(-length // block_size)
        for state in states:
            assert torch.equal(state.block_table[place, :used], table[rows[place], :used])


def test_what_padding_chooses_is_no_sequences_token():
    state = StepState(torch.zeros(3, 2, dtype=torch.int32), 4, "fast")
    state.choose(torch.tensor([2, 0, PADDING]), torch.tensor([7, -1, 9]))
    assert state.last_tokens[:3].tolist() == [0, 0, 7]


@pytest.mark.parametrize("device", DEVICES)
def test_there_and_back(device):
    tensor = send([3, 1, 2], torch.int32, torch.device(device))
    assert tensor.device.type == device and tensor.dtype == torch.int32
    arriving = Arriving(tensor)
    tensor.zero_()  # what comes later does not count
    assert arriving.wait().tolist() == [3, 1, 2]


def test_the_stream_that_copies_is_the_one_that_is_waited_for(monkeypatch):
    """It is of the tensor's GPU. The current GPU may be another one."""
    waited_for = []
    event = SimpleNamespace(record=lambda stream=None: waited_for.append(stream))
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: device)
    arriving = SimpleNamespace(copy_=lambda tensor, non_blocking: None)
    monkeypatch.setattr(torch, "empty", lambda shape, dtype, pin_memory: arriving)
    second = torch.device("cuda:1")
    Arriving(SimpleNamespace(device=second, shape=(2,), dtype=torch.int64))
    assert waited_for == [second]
