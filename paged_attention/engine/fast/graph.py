"""The launches of a step, recorded once and replayed.

On a GPU that is a CUDA graph. On the CPU a stand-in records what is called, with the very
tensors, and calls it again. Both know tensors by their memory: what is new in a step must be
written into the tensors of the recorded one.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
READS = (aten.item.default, aten._local_scalar_dense.default, aten.is_nonzero.default)
_recorders: list["Recorder"] = []  # the one that records now is the last


class GraphError(RuntimeError):
    """A step that cannot be recorded."""


class StepGraph:
    """A step, recorded.

    `result`: what the step returned. Each replay writes it anew, in the same place.
    """

    def __init__(self, result: Any, replay: Callable[[], None]):
        self.result, self._replay = result, replay

    def replay(self) -> Any:
        """Runs the step again on what its tensors hold now. Returns `result`."""
        self._replay()
        return self.result


def capture(step: Callable[[], Any], device: torch.device, pool=None) -> StepGraph:
    """Records a step.

    step: called once or twice. It may not read a tensor on the host.
    pool: on a GPU, the memory that graphs share; graphs of one pool must not be used after
        another of them has run.
    Raises GraphError, with the reason, for a step that cannot be recorded.
    """
    try:
        if device.type == "cuda":
            return _capture_cuda(step, pool)
        with Recorder() as recorder:
            result = step()
        return StepGraph(result, recorder.replay)
    except GraphError:
        raise
    except RuntimeError as error:
        raise GraphError(
            f"the step cannot be recorded: {str(error).strip().splitlines()[0]}"
        ) from error


def _capture_cuda(step: Callable[[], Any], pool) -> StepGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()  # libraries do their first things now, which a graph could not hold
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = step()
    return StepGraph(result, graph.replay)


def launch(function: Callable, *arguments, **named) -> None:
    """Calls a function that writes into its tensors, and records it where a graph does.

    A CUDA graph sees each launch. The stand-in sees PyTorch's operations only, so the course's
    kernels are called through this.
    """
    if not _recorders:
        function(*arguments, **named)
        return
    recorder = _recorders.pop()  # what the function does inside is a part of this one call
    try:
        function(*arguments, **named)
        recorder.calls.append(lambda: function(*arguments, **named))
    finally:
        _recorders.append(recorder)


class Recorder(TorchDispatchMode):
    """The stand-in: records PyTorch's operations and the kernels that go through `launch`."""

    def __init__(self):
        super().__init__()
        self.calls: list[Callable[[], Any]] = []

    def __enter__(self):
        _recorders.append(self)
        return super().__enter__()

    def __exit__(self, *error):
        _recorders.remove(self)
        return super().__exit__(*error)

    def replay(self) -> None:
        for call in self.calls:
            call()

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        named = named or {}
        if self not in _recorders:
            return function(*arguments, **named)
        if function in READS:
            raise GraphError(
                "the step reads a number on the host, which a recorded step cannot do: "
                "when it is replayed, nobody reads"
            )
        result = function(*arguments, **named)
        if function._schema.is_mutable:
            self.calls.append(lambda: function(*arguments, **named))
        elif "empty" not in function._opname and not _is_view(result, arguments):
            self.calls.append(lambda: _write(result, function(*arguments, **named)))
        return result


def _is_view(result: Any, arguments: tuple) -> bool:
    """Whether a result is the memory of an argument. Then there is nothing to do again."""
    memory = {
        argument.untyped_storage().data_ptr()
        for argument in arguments
        if isinstance(argument, Tensor)
    }
    return isinstance(result, Tensor) and result.untyped_storage().data_ptr() in memory


def _write(to: Any, values: Any) -> None:
    if isinstance(to, Tensor):
        to.copy_(values)
    elif isinstance(to, (tuple, list)):
        for one, value in zip(to, values):
            _write(one, value)
