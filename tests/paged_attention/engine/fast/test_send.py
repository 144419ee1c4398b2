"""Numbers on their way to a device and back. What is sent later does not change them."""

import pytest
import torch

from paged_attention.transfer import Arriving, send, send_into

NUM_GPUS = torch.cuda.device_count()
# The second GPU is not the current one.
DEVICES = ["cpu"] + ["cuda"] * (NUM_GPUS > 0) + ["cuda:1"] * (NUM_GPUS > 1)
devices = pytest.mark.parametrize("device", DEVICES)


@devices
def test_there_and_back(device):
    numbers = torch.tensor([3, 1, 2], dtype=torch.int32)
    tensor = send(numbers, torch.int32, torch.device(device))
    numbers[0] = 7
    assert tensor.device.type == torch.device(device).type
    assert tensor.dtype == torch.int32
    arriving = Arriving(tensor)
    tensor.zero_()
    assert arriving.wait().tolist() == [3, 1, 2]


@devices
def test_numbers_go_into_a_tensor_that_is_there(device):
    tensor = torch.zeros(3, dtype=torch.int32, device=device)
    send_into(tensor[:2], [4.0, 5.0])
    assert tensor.tolist() == [4, 5, 0]


@pytest.mark.skipif(not NUM_GPUS, reason="there is no GPU here")
def test_the_host_does_not_wait_for_what_it_sends():
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        sent = send([1, 2], torch.int64, torch.device("cuda"))
        send_into(sent, [3, 4])
        arriving = Arriving(sent)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert arriving.wait().tolist() == [3, 4]
