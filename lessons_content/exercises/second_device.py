"""A device besides the CPU on every machine.

With it, a check can see which tensors an answer leaves on the CPU.

Its tensors lie in the CPU's memory like all others, and carry a mark. Within `SecondDevice()`
PyTorch's functions look at it: what is made there or moved there has the mark, and what is
computed from marked tensors has it too.
"""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

SECOND = torch.device("cuda", 7)
BACK = {"cpu", "tolist", "numpy"}


class SecondDevice(TorchFunctionMode):
    """Within this, PyTorch has the device SECOND.

    of_one_device: functions that want their tensors on one device.
    """

    of_one_device = {"add", "sub", "mul", "cat", "concat", "stack"} | {
        f"__{side}{name}__"
        for name in ("add", "sub", "mul", "floordiv", "mod")
        for side in ("", "r", "i")
    }

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(function, "__name__", "")
        if function == Tensor.device.__get__:
            return SECOND if is_there(args[0]) else function(*args)
        given = list(tensors_in([args, kwargs]))
        sides = {is_there(tensor) for tensor in given if tensor.dim()}
        if name in self.of_one_device and len(sides) == 2:
            raise RuntimeError(
                "Expected all tensors to be on the same device, "
                f"but found at least two devices, {SECOND} and cpu!"
            )
        there = any(map(is_there, given)) and name not in BACK
        args = list(args)
        places = [(kwargs, "device")] if "device" in kwargs else []
        places += [(args, i) for i in range(1, len(args)) if name == "to"]
        for holder, key in places:
            device = as_device(holder[key])
            if device is not None:
                there, holder[key] = device == SECOND, "cpu" if device == SECOND else device
        result = function(*args, **kwargs)
        if any(result is tensor and is_there(tensor) != there for tensor in given):
            result = result.clone()
        for tensor in tensors_in(result):
            tensor.on_the_second_device = there
        return result


def is_there(tensor: Tensor) -> bool:
    return getattr(tensor, "on_the_second_device", False)


def as_device(value) -> torch.device | None:
    """The device that an argument names, or None."""
    if isinstance(value, torch.device):
        return value
    if isinstance(value, str):
        return torch.device(value)
    if isinstance(value, Tensor):
        return SECOND if is_there(value) else torch.device("cpu")
    return None


def tensors_in(value):
    """The tensors in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(part)
