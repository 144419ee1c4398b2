"""The launches of a step, recorded once and replayed.

On a GPU that is a CUDA graph. On the CPU a stand-in records what is called, with the very
tensors, and calls it again. Both know tensors by their memory: what is new in a step must be
written into the tensors of the recorded one.
"""

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# Operations for which the host reads a number, or how large the result is.
READS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
UNTAGGED_READS = (
    aten.is_nonzero.default,
    aten.nonzero_numpy.default,
    aten.where.default,
    aten.repeat_interleave.self_Tensor,
)
ONE_NUMBER = (aten.item.default, aten._local_scalar_dense.default)  # for the host
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
# These are no operations, or make a copy for the host.
TO_PYTHON = (
    Tensor.tolist,
    Tensor.numpy,
    Tensor.__array__,
    Tensor.__dlpack__,
    Tensor.__repr__,
    Tensor.__format__,
    Tensor.cpu,
)
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
        launch(self._replay)
        return self.result


def capture(
    step: Callable[[], Any], device: torch.device, pool=None, warm_up: bool = True
) -> StepGraph:
    """Records a step.

    step: called once or twice. It may not read a tensor on the host.
    pool: on a GPU, the memory that graphs share. The result of one must not be used after
        another has run.
    warm_up: on a GPU, whether the step runs before it is recorded. It must, unless another
        has run with the same libraries and shapes.
    Raises GraphError, with the reason, for a step that cannot be recorded.
    """
    try:
        if device.type == "cuda":
            return _capture_cuda(step, device, pool, warm_up)
        with ToPython(), Recorder() as recorder:
            result = step()
        return StepGraph(result, recorder.replay)
    except GraphError:
        raise
    except RuntimeError as error:
        raise GraphError(
            f"the step cannot be recorded: {str(error).strip().splitlines()[0]}"
        ) from error


def _capture_cuda(
    step: Callable[[], Any], device: torch.device, pool, warm_up: bool
) -> StepGraph:
    with torch.cuda.device(device):
        if warm_up:  # what libraries do in their first call cannot be recorded
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                step()
            torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with (
            _no_collection(),
            torch.cuda.graph(graph, pool=pool, stream=_capture_stream(device)),
        ):
            result = step()
    return StepGraph(result, graph.replay)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps Python from collecting garbage in a `with` block.

    In it may be an older graph, and a graph that is freed meanwhile breaks the recording.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@functools.cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream to record on. PyTorch's own is on the GPU that recorded first."""
    return torch.cuda.Stream(device)


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
        self.fills = False  # whether `x[mask] = number` runs, which ToPython sees

    def __enter__(self):
        _recorders.append(self)
        return super().__enter__()

    def __exit__(self, *error):
        _recorders.remove(self)
        return super().__exit__(*error)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # there is no Dynamo to keep away, and importing it takes a second

    def replay(self) -> None:
        for call in self.calls:
            call()

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        named = named or {}
        if self not in _recorders:
            return function(*arguments, **named)
        if _reads(function, arguments, self.fills):
            raise _read_on_the_host()
        result = function(*arguments, **named)
        if function._schema.is_mutable:
            self.calls.append(lambda: function(*arguments, **named))
        elif _computes(function, result, arguments):
            self.calls.append(lambda: _write(result, function(*arguments, **named)))
        return result


class StartCounter(Recorder):
    """Counts what the host starts on the device in a `with` block.

    `count`: PyTorch's operations, kernels, and replays of recorded steps, one for each. Views
        start nothing, nor does reading a number.
    """

    @property
    def count(self) -> int:
        return len(self.calls)

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **named or {})
        if self in _recorders and _computes(function, result, arguments):
            self.calls.append(function)
        return result


class ToPython(TorchFunctionMode):
    """Refuses what turns a tensor into Python's numbers while a step is recorded.

    A few functions read on the CPU and not on a GPU. They are allowed.
    """

    def __torch_function__(self, function, types, arguments=(), named=None):
        named = named or {}
        if not _recorders:
            return function(*arguments, **named)
        if function in TO_PYTHON or _is_to_cpu(function, arguments, named):
            raise _read_on_the_host()
        if function is one_hot and (num_classes := _num_classes(*arguments, **named)) > 0:
            classes = torch.arange(num_classes, device=arguments[0].device)
            return (arguments[0][..., None] == classes).long()
        _recorders[-1].fills = function is Tensor.__setitem__ and isinstance(
            arguments[2], (bool, int, float)
        )
        return function(*arguments, **named)


def _is_to_cpu(function, arguments: tuple, named: dict) -> bool:
    """Whether it is `x.to("cpu")`. A device that is x's own may be the CPU."""
    devices = (*arguments[1:2], named.get("device"))
    return function is Tensor.to and any(
        isinstance(device, str) and device == "cpu" for device in devices
    )


def _num_classes(tensor: Tensor, num_classes: int = -1) -> int:
    return num_classes


def _reads(function, arguments: tuple, fills: bool) -> bool:
    """Whether the host must know a tensor's numbers before it can go on."""
    if function in INDEXING:  # by a mask: how many are chosen
        is_mask = [_is_mask(index) for index in arguments[1] if index is not None]
        return any(is_mask) and not (fills and len(is_mask) == 1)
    return function in UNTAGGED_READS or any(tag in function.tags for tag in READS)


def _is_mask(index: Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _read_on_the_host() -> GraphError:
    return GraphError(
        "the step reads a number on the host, which a recorded step cannot do: "
        "a replay does not come back to the host"
    )


def _computes(function, result: Any, arguments: tuple) -> bool:
    """Whether an operation writes numbers into a tensor."""
    if function._schema.is_mutable:
        return True
    if function in ONE_NUMBER or "empty" in function._opname:
        return False
    return not _is_view(result, arguments)


def _is_view(result: Any, arguments: tuple) -> bool:
    """Whether a result is the memory of an argument. Then there is nothing to do again."""
    memory = {
        argument.untyped_storage().data_ptr()
        for argument in arguments
        if isinstance(argument, Tensor)
    }
    results = result if isinstance(result, (tuple, list)) else [result]
    return all(
        isinstance(one, Tensor) and one.untyped_storage().data_ptr() in memory
        for one in results
    )


def _write(to: Any, values: Any) -> None:
    if isinstance(to, Tensor):
        to.copy_(values)
    elif isinstance(to, (tuple, list)):
        for one, value in zip(to, values):
            _write(one, value)
