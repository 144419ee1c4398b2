"""What the device knows of all sequences: their table, their last tokens, their lengths."""

import pytest
import torch

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


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_what_padding_chooses_is_no_sequences_token(dtype):
    state = StepState(torch.zeros(3, 2, dtype=torch.int32), 4, "fast")
    state.choose(torch.tensor([2, 0, PADDING], dtype=dtype), torch.tensor([7, -1, 9]))
    assert state.last_tokens[:3].tolist() == [0, 0, 7]
