"""Numbers on their way to a GPU and back, on stand-ins for the GPU's part."""

from types import SimpleNamespace

import pytest
import torch

from paged_attention.send import Arriving, send, send_into

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def copies(monkeypatch):
    """What is copied, as (kind, numbers, whether the host does not wait)."""
    done, pinned = [], []
    plain = torch.Tensor.copy_

    def pin(tensor):
        pinned.append(tensor.clone())
        return pinned[-1]

    def to(tensor, device, non_blocking=False):
        done.append((device, tensor.tolist(), is_pinned(tensor), non_blocking))
        return tensor

    def copy(tensor, source, non_blocking=False):
        done.append((None, source.tolist(), is_pinned(source), non_blocking))
        return plain(tensor, source)

    def is_pinned(tensor):
        return any(tensor is each for each in pinned)

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    return done


def test_numbers_for_the_cpu_are_copied():
    given = torch.tensor([1, 2])
    sent = send(given, torch.int64, CPU)
    given[0] = 7
    assert sent.tolist() == [1, 2]
    assert send([3.0], torch.int32, CPU).dtype == torch.int32
    assert send([3], torch.int32, torch.device("meta")).is_meta


def test_numbers_for_a_gpu_go_from_pinned_memory_and_nobody_waits(copies):
    sent = send([1, 2], torch.int32, GPU)
    assert copies == [(GPU, [1, 2], True, True)] and sent.dtype == torch.int32


@pytest.mark.parametrize("on_gpu", [False, True])
def test_numbers_go_into_a_tensor_that_is_there(copies, on_gpu):
    into = torch.zeros(2, dtype=torch.int32)
    received = SimpleNamespace(
        dtype=torch.int32,
        is_cuda=on_gpu,
        copy_=lambda *words, **how: into.copy_(*words, **how),
    )
    send_into(received, [4.0, 5.0])
    assert into.tolist() == [4, 5]
    assert repr(copies) == repr([(None, [4, 5], on_gpu, True)])  # whole numbers


def test_what_is_on_the_cpu_has_arrived_and_does_not_change():
    tensor = torch.tensor([1, 2])
    arriving = Arriving(tensor)
    tensor[0] = 7
    assert arriving.wait().tolist() == [1, 2]


class Event:
    """Notes the stream that it is recorded in, and whether somebody has waited."""

    def __init__(self):
        self.stream, self.waited = None, False

    def record(self, stream):
        self.stream = stream

    def synchronize(self):
        self.waited = True


def test_what_is_on_a_gpu_arrives_in_pinned_memory_after_the_earlier_work_of_its_stream(
    monkeypatch, copies
):
    made, plain = [], torch.empty

    def empty(shape, dtype, pin_memory=False):
        made.append(pin_memory)
        return plain(shape, dtype=dtype)

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    tensor = SimpleNamespace(shape=(2,), dtype=torch.int64, device=GPU, tolist=lambda: [8, 9])
    monkeypatch.setattr(
        torch.Tensor,
        "copy_",
        lambda into, source, non_blocking=False: copies.append((source, non_blocking)),
    )
    arriving = Arriving(tensor)
    assert copies == [(tensor, True)] and made == [True]
    assert arriving.arrived.stream == "stream of cuda" and not arriving.arrived.waited
    arrived = arriving.wait()
    assert arriving.arrived.waited and (arrived.shape, arrived.dtype) == ((2,), torch.int64)
