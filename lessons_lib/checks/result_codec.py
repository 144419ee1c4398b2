"""Results of answers as JSON. A sandbox writes it. Reading it runs no code of the answer."""

import base64
import math
import re
import sys
from dataclasses import fields, is_dataclass

import numpy as np
import torch

from lessons_lib import rooms

LARGEST = 1 << 20  # the most numbers in a tensor
# the most keys in a set or a dictionary: a forger could make all hashes equal
MOST_KEYS = 2_000
_CONTAINERS: dict[str, type[tuple | list | set | frozenset]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
}
# The dtypes of tensors. All are plain numbers: each bit pattern is a valid number.
_DTYPES = {
    str(dtype): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
    )
}


class Foreign:
    """A value that no right answer gives, described in words. It equals nothing."""

    def __init__(self, words: str):
        self.words = words

    def __repr__(self):
        return self.words


def gone(*arguments, **named):
    """Replaces the course's own answers in a sandbox, and the functions that judge."""
    raise LookupError("The course's own answer is not here.")


def encode(value):
    """`value` in a form that json.dumps takes. A value that cannot be sent becomes words."""
    try:
        return _encode(value)
    except Exception:  # the value contains itself, or its own methods fail
        return ["foreign", f"something of type {type(value).__name__}"]


def decode(data):
    """The value that `encode` was given.

    Data that `encode` did not make may raise any exception.
    """
    if not isinstance(data, list):
        return data
    kind, *parts = data
    if kind in ("set", "frozenset", "dict") and len(parts[0]) > MOST_KEYS:
        raise ValueError("it has too many keys")
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](map(decode, parts[0]))
    if kind == "dict":
        return {decode(key): decode(value) for key, value in parts[0]}
    if kind == "tensor":
        return _tensor(*parts)
    if kind == "numpy":
        return _array(*parts)
    if kind == "course":
        return _of_the_course(*parts)
    return Foreign(str(parts[0])[:300])


def _encode(value):
    if (
        value is None
        or type(value) in (bool, float, str)
        or type(value) is int
        and value.bit_length() < 10_000
    ):
        return value
    if isinstance(value, torch.Tensor) and value.numel() <= LARGEST:
        plain = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return [
            "tensor",
            str(plain.dtype),
            list(plain.shape),
            _text(plain.reshape(-1).view(torch.uint8).numpy()),
        ]
    if (
        isinstance(value, np.generic | np.ndarray)
        and value.dtype.kind in "biufc"
        and value.size <= LARGEST
    ):
        return ["numpy", value.dtype.str, list(value.shape), _text(value)]
    is_plain = (
        isinstance(value, str | tuple) or is_dataclass(value) and not isinstance(value, type)
    )
    if is_plain and type(value).__module__.startswith(rooms.RESULT_CLASSES):
        base = next(
            (_encode(kind(value)) for kind in (str, tuple) if isinstance(value, kind)), None
        )
        attributes = {name: _encode(part) for name, part in vars(value).items()}
        return ["course", type(value).__module__, type(value).__qualname__, base, attributes]
    for kind, base in _CONTAINERS.items():
        if isinstance(value, base):
            return [kind, [_encode(part) for part in value]]
    if isinstance(value, dict):
        return ["dict", [[_encode(key), _encode(part)] for key, part in value.items()]]
    for base in (str, int, float):
        if isinstance(value, base) and type(value) is not base:
            return _encode(base(value))
    return ["foreign", repr(value)[:300]]


def _text(array: np.ndarray | np.generic) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _tensor(dtype: str, shape: list[int], text: str) -> torch.Tensor:
    numbers = torch.frombuffer(
        bytearray(base64.b64decode(text)) or bytearray(16), dtype=_DTYPES[dtype]
    )
    # NumPy refuses a shape with too many dimensions.
    return numbers[: math.prod(shape)].reshape(np.broadcast_to(0, shape).shape)


def _array(dtype: str, shape: list[int], text: str):
    if not re.fullmatch("[<>=|][biufc][0-9]{1,2}", dtype):
        raise ValueError("these are no plain numbers")
    return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape)[()]


def _of_the_course(module: str, name: str, base, attributes: dict):
    """An object of a class that the course's checks define, made without calling the class."""
    kind = getattr(sys.modules[module], name)
    if (
        not module.startswith(rooms.RESULT_CLASSES)
        or not isinstance(kind, type)
        or kind.__module__ != module
    ):
        raise ValueError(f"{module}.{name} is no result")
    parts = {key: decode(part) for key, part in attributes.items()}
    value: object
    if issubclass(kind, str):
        value = str.__new__(kind, decode(base))
    elif issubclass(kind, tuple):
        value = tuple.__new__(kind, decode(base))
    elif is_dataclass(kind) and set(parts) == {field.name for field in fields(kind)}:
        value = object.__new__(kind)
    else:
        raise ValueError(f"{module}.{name} is no result")
    if any(
        getattr(kind, key, None) is not None and type(part) is not type(getattr(kind, key))
        for key, part in parts.items()
    ):
        raise TypeError(f"{name} has a part of another type")
    vars(value).update(parts)
    return value
