"""A device that is not here: on a CPU, what would be its memory, which no one may read."""

import contextlib
import sys

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from paged_attention.engine.fast.graph import INDEXING, READS, TO_PYTHON, UNTAGGED_READS
from paged_attention.transfer import Arriving, send


class ReadOnHost(AssertionError):
    """The host has read what is on the device."""


class Watch(TorchDispatchMode):
    """Follows which memory would be the device's, on a CPU, and refuses to read it.

    What is made from the device's memory is the device's, and so is what `send` gives. What
    has arrived is the host's.
    """

    def __init__(self, monkeypatch):
        super().__init__()
        self.memory = {}  # kept, so that no other tensor gets the same address
        sends, wait = send, Arriving.wait
        for module in list(sys.modules.values()):
            if vars(module).get("send") is sends:
                monkeypatch.setattr(module, "send", lambda *all: self.of_device(sends(*all)))
        monkeypatch.setattr(Arriving, "wait", lambda arriving: self.of_host(wait(arriving)))

    def of_device(self, *tensors):
        for tensor in tensors:
            self.memory[tensor.untyped_storage().data_ptr()] = tensor
        return tensors[0] if tensors else None

    def of_host(self, tensor):
        self.memory.pop(tensor.untyped_storage().data_ptr(), None)
        return tensor

    def has(self, values) -> bool:
        return any(
            tensor.untyped_storage().data_ptr() in self.memory for tensor in tensors(values)
        )

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        of_device = self.has((arguments, named or {}))
        if of_device and reads(function, arguments):
            raise ReadOnHost(str(function))
        result = function(*arguments, **named or {})
        if of_device:
            written = arguments[:1] if function._schema.is_mutable else ()
            self.of_device(*tensors((result, written)))
        return result


class WatchPython(TorchFunctionMode):
    """The part of Watch that is above PyTorch's operations."""

    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch

    def __torch_function__(self, function, types, arguments=(), named=None):
        if function in TO_PYTHON and self.watch.has(arguments):
            raise ReadOnHost(function.__name__)
        result = function(*arguments, **named or {})
        if isinstance((named or {}).get("device"), torch.device):  # the host names none
            self.watch.of_device(*tensors(result))
        return result


def reads(function, arguments: tuple) -> bool:
    """Whether the host must know a tensor's numbers before it can go on."""
    if function in INDEXING:  # by a mask: how many are chosen
        return any(index.dtype == torch.bool for index in tensors(arguments[1]))
    return function in UNTAGGED_READS or any(tag in function.tags for tag in READS)


def tensors(values) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        return []
    return [tensor for value in values for tensor in tensors(value)]


@contextlib.contextmanager
def watched(engine, monkeypatch):
    watch, runner = Watch(monkeypatch), engine.runner
    watch.of_device(*engine.runner.model.parameters(), engine.manager.kv_cache)
    watch.of_device(engine.manager.block_table, runner.logits, *tensors(vars(runner.state)))
    watch.of_device(*tensors([graph.result for graph in runner.graphs.values()]))
    if engine.in_flight is not None:
        watch.of_device(engine.in_flight[1].tensor)
    with WatchPython(watch), watch:
        yield
