"""Recording on a GPU: what runs on which stream, and in which order. The GPU is a stand-in."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from paged_attention.engine.fast import graph as graphs
from paged_attention.engine.fast.graph import GraphError, capture

SECOND = torch.device("cuda:1")


class Cuda:
    """A stand-in for torch.cuda: notes what happens on which GPU and stream.

    `happened`: in order. `gpu`, `stream`: the current ones. `recording`: a graph, or None.
    """

    def __init__(self):
        self.happened, self.gpu, self.recording = [], "cuda:0", None
        self.stream = SimpleNamespace(name="the host's", wait_stream=self._waits("the host's"))

    def _waits(self, name):
        return lambda other: self.happened.append(f"{name} waits for {other.name}")

    def Stream(self, device=None):
        name = f"a stream of {device or self.gpu}"
        return SimpleNamespace(name=name, wait_stream=self._waits(name))

    def current_stream(self):
        return self.stream

    @contextmanager
    def device(self, device):
        before, self.gpu = self.gpu, str(device)
        yield
        self.gpu = before

    @contextmanager
    def on(self, stream):
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    def CUDAGraph(self):
        return SimpleNamespace(replay=lambda: self.happened.append("replayed"))

    @contextmanager
    def graph(self, graph, pool=None, stream=None):
        self.recording = graph
        self.happened.append(f"recording into {pool}")
        with self.on(stream or SimpleNamespace(name="PyTorch's own")):
            yield
        self.recording = None

    def step(self):
        how = "recorded" if self.recording else "run"
        self.happened.append(f"{how} on {self.stream.name}")
        return f"the result of the step that was {how}"


@pytest.fixture
def cuda(monkeypatch):
    stand_in = Cuda()
    for name in ("Stream", "current_stream", "device", "CUDAGraph", "graph"):
        monkeypatch.setattr(torch.cuda, name, getattr(stand_in, name))
    monkeypatch.setattr(torch.cuda, "stream", stand_in.on)
    graphs._capture_stream.cache_clear()
    yield stand_in
    graphs._capture_stream.cache_clear()


def test_a_step_runs_once_on_another_stream_and_is_then_recorded(cuda):
    """The first call of a library may do what cannot be recorded."""
    graph = capture(cuda.step, SECOND, "the memory of all graphs")
    assert cuda.happened == [
        "a stream of cuda:1 waits for the host's",
        "run on a stream of cuda:1",
        "the host's waits for a stream of cuda:1",
        "recording into the memory of all graphs",
        "recorded on a stream of cuda:1",
    ]
    assert graph.result == "the result of the step that was recorded"
    del cuda.happened[:]
    assert graph.replay() is graph.result and cuda.happened == ["replayed"]


def test_all_graphs_of_a_gpu_are_recorded_on_one_stream(cuda):
    assert graphs._capture_stream(SECOND) is graphs._capture_stream(SECOND)
    assert graphs._capture_stream(torch.device("cuda:0")) is not graphs._capture_stream(SECOND)


@pytest.mark.parametrize("device", [torch.device("cpu"), SECOND], ids=str)
def test_an_error_of_pytorch_says_in_its_first_line_why_a_step_is_not_recorded(cuda, device):
    def step():
        raise RuntimeError("\noperation not permitted\nCompile with TORCH_USE_CUDA_DSA")

    with pytest.raises(GraphError) as raised:
        capture(step, device)
    assert str(raised.value) == "the step cannot be recorded: operation not permitted"
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_another_error_of_the_step_is_its_own(cuda):
    with pytest.raises(ZeroDivisionError):
        capture(lambda: 1 // 0, torch.device("cpu"))
