"""What the device knows of all sequences: their table, their last tokens, their lengths."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fast_requests import DEVICES
from paged_attention.engine.fast.state import PADDING, SentTable, StepState


@pytest.mark.parametrize("device", DEVICES)
def test_a_table_is_sent_once_a_step_and_only_what_has_changed(device):
    table = SentTable(3, 4, torch.device(device))
    table.free_rows.remove(1)
    table.write(1, 0, [7, 8])
    table.write(1, 1, [9])
    table.write(2, 3, [5])
    assert (table.on_device == -1).all()
    table.send()
    assert table.on_device.tolist() == [[-1] * 4, [7, 9, -1, -1], [-1, -1, -1, 5]]
    assert torch.equal(table.on_device.cpu(), table.cpu) and table.cpu.device.type == "cpu"
    table.on_device[2, 3] = 99
    table.clear(1)
    assert sorted(table.free_rows) == [0, 1, 2] and table.cpu[1].tolist() == [-1] * 4
    table.write(1, 0, [3])
    table.send()
    table.send()
    assert table.cpu[1].tolist() == [3, -1, -1, -1] and table.on_device[1, 0] == 3
    assert table.on_device[2, 3] == 99


@settings(max_examples=40)
@given(data=st.data(), block_size=st.integers(1, 4), size=st.integers(1, 5))
def test_the_host_fills_a_step_as_the_device_advances_it(data, block_size, size):
    num_seqs = data.draw(st.integers(1, size))
    rows = data.draw(st.permutations(range(5)))[:num_seqs]
    lengths = [data.draw(st.integers(1, 8)) for _ in rows]
    tokens = [data.draw(st.integers(0, 99)) for _ in rows]
    table = torch.randperm(5 * 8).int().view(5, 8)
    states = [StepState(table, block_size, "fast") for _ in range(2)]
    assert (states[0].rows == PADDING).all() and (states[0].slots == PADDING).all()
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


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_what_padding_chooses_is_no_sequences_token(dtype):
    state = StepState(torch.zeros(3, 2, dtype=torch.int32), 4, "fast")
    state.choose(torch.tensor([2, 0, PADDING], dtype=dtype), torch.tensor([7, -1, 9]))
    assert state.last_tokens[:3].tolist() == [0, 0, 7]
