"""Calls that are prepared once and made often, such as one in each layer of a model."""

import ctypes

import torch
from torch import Tensor

from lessons_lib.cuda.arguments import check
from lessons_lib.cuda.calls import CallOnCpu, CallOnGpu
from lessons_lib.cuda.signatures import STREAM, Function


class PreparedOnGpu:
    """A call whose arguments are already converted for C. Only changed arguments are set
    again.

    It keeps the addresses of tensors, not the tensors. So every tensor that is not given again
    must still exist.
    """

    def __init__(
        self, run: CallOnGpu, function: Function, values: dict, device: torch.device | None
    ):
        self.run, self.function, self.device = run, function, device
        # a new object each time, so that its argument types are not shared
        self.called = run.library[function.name]
        self.called.argtypes = function.ctypes
        self.arguments = [ctype() for ctype in function.ctypes]
        self.stream: ctypes.c_void_p | None = None
        # for each argument, the object and the field to set
        self.places: dict[str, tuple] = {}
        for parameter, argument in zip(function.parameters, self.arguments, strict=True):
            if parameter.type == STREAM:
                self.stream = argument
            elif parameter.fields:
                self.places |= {
                    field.name: (argument, field.name) for field in parameter.fields
                }
            else:
                self.places[parameter.name] = argument, "value"
        self._set(values)

    def __call__(self, **changes) -> None:
        """Launches on PyTorch's current stream, and returns at once."""
        self._set(changes)
        with torch.cuda.device(self.device):
            if self.stream is not None:
                self.stream.value = torch.cuda.current_stream(self.device).cuda_stream
            self.run.launch(self.function, lambda: self.called(*self.arguments))

    def _set(self, values: dict) -> None:
        for name, value in values.items():
            argument, field = self.places[name]
            setattr(argument, field, value.data_ptr() if isinstance(value, Tensor) else value)


class PreparedOnCpu:
    """The same for the CPU targets. Each call is checked and watched like any other."""

    def __init__(self, run: CallOnCpu, function: Function, values: dict):
        self.run, self.function, self.values = run, function, values

    def __call__(self, **changes) -> None:
        values = self.values | changes
        device = check(self.function, values, "cpu")
        self.values = values  # refused values are not kept
        self.run(self.function, values, device)
