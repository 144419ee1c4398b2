"""Matches Python values to a CUDA function's parameters by name, and checks them."""

import ctypes
import math
import numbers
import operator

import torch

from lessons_lib.cuda.signatures import DTYPES, SCALARS, Function, Parameter


def bind(function: Function, values: tuple, named: dict) -> dict[str, object]:
    """The value of each argument, by name. The fields of a struct come by keyword only.

    Raises TypeError for an argument that is missing, unknown or given twice.
    """
    by_position = function.by_position
    if len(values) > len(by_position):
        fields = (
            " (a struct's fields are given by keyword)"
            if any(p.fields for p in function.parameters)
            else ""
        )
        raise TypeError(
            f"{function.name} takes {len(by_position)} arguments by position{fields}, "
            f"not {len(values)}: {function}"
        )
    given = dict(zip(by_position, values, strict=False))
    for name, value in named.items():
        if name in given:
            raise TypeError(f"{function.name}: {name} is given twice")
        given[name] = value
    expected = [argument.name for argument in function.arguments]
    for problem, names in (
        ("missing", [name for name in expected if name not in given]),
        ("unknown", [name for name in given if name not in expected]),
    ):
        if names:
            raise TypeError(
                f"{function.name}: {problem} argument{'s' * (len(names) > 1)} "
                f"{', '.join(names)}. It takes: {function}"
            )
    return given


def check(
    function: Function, given: dict[str, object], device_type: str
) -> torch.device | None:
    """Checks that each value fits its argument. Returns the device of the tensors.

    device_type: "cpu" or "cuda", where the tensors must be.
    Raises TypeError or ValueError for a value that does not fit.
    """
    first_name, device = None, None
    for argument in function.arguments:
        value, where = given[argument.name], f"{function.name}: {argument.name}"
        if not argument.pointer:
            given[argument.name] = _number(argument, value, where)
        elif value is not None:
            tensor = _check_tensor(argument, value, where, device_type)
            if device is not None and tensor.device != device:
                raise ValueError(
                    f"{where} is on {tensor.device}, and {first_name} on {device}; "
                    "all tensors must be on one device"
                )
            first_name, device = first_name or argument.name, tensor.device
    return device


def _check_tensor(
    argument: Parameter, value: object, where: str, device_type: str
) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{where} takes a tensor ({argument}), not {type(value).__name__}")
    if value.layout != torch.strided:
        raise ValueError(
            f"{where} is a tensor of the layout {value.layout}; "
            "a kernel needs the elements in memory"
        )
    dtype = DTYPES[argument.type]
    if dtype is not None and value.dtype != dtype:
        raise TypeError(f"{where} takes a tensor of {dtype} ({argument}), not {value.dtype}")
    if value.device.type != device_type:
        built, remedy = (
            ("the CPU", ".cpu()") if device_type == "cpu" else ("the GPU", ".cuda()")
        )
        raise ValueError(
            f"{where} is on {value.device}, but this library was built for {built}: "
            f"pass {argument.name}{remedy}, or build for another target"
        )
    expanded = any(
        stride == 0 and size > 1
        for size, stride in zip(value.shape, value.stride(), strict=True)
    )
    if expanded and not argument.const:
        raise ValueError(
            f"{where} may be written, but some of its elements share memory (strides "
            f"{value.stride()}); pass a tensor that was not expanded"
        )
    return value


def _number(argument: Parameter, value, where: str):
    ctype = SCALARS[argument.type]
    if isinstance(value, torch.Tensor):
        raise TypeError(
            f"{where} takes a number ({argument}), not a tensor; pass {argument.name}.item()"
        )
    if argument.type in ("float", "double"):
        if not isinstance(value, numbers.Real):
            raise TypeError(f"{where} takes a number ({argument}), not {type(value).__name__}")
        try:
            number = ctype(value).value
        except OverflowError:
            number = math.inf
        if math.isinf(number) and value not in (math.inf, -math.inf):
            raise ValueError(f"{where} is {value}, which does not fit into {argument.type}")
        return float(value)
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{where} takes a whole number ({argument}), not {type(value).__name__}"
        ) from None
    if argument.type == "bool":
        if number not in (0, 1):
            raise ValueError(f"{where} takes True or False, not {value!r}")
        return bool(number)
    if ctype(number).value != number:
        raise ValueError(f"{where} is {number}, which does not fit into {argument.type}")
    return number


def span_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the start of the tensor's first element to the end of its last element."""
    if tensor.numel() == 0:
        return 0
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (last + 1) * tensor.element_size()


def has_gaps(tensor: torch.Tensor) -> bool:
    """Whether other memory lies between the tensor's elements, or elements share memory."""
    return span_bytes(tensor) != tensor.numel() * tensor.element_size()


def same_memory(function: Function, values: dict[str, object]) -> dict[str, str]:
    """Which arguments share the memory of a written argument, as name to that argument's name.

    Raises ValueError if two tensors share only a part of their memory and one is written. The
    kernel works on copies, so the two would not see each other's writes.
    """
    tensors = [
        (argument, value)
        for argument in function.arguments
        if isinstance(value := values[argument.name], torch.Tensor)
    ]
    same: dict[str, str] = {}
    for written, target in tensors:
        if written.const or written.name in same:
            continue
        for argument, tensor in tensors:
            if argument is written or not _spans_meet(tensor, target):
                continue
            if _layout(tensor) == _layout(target):
                same[argument.name] = written.name
            elif not has_gaps(tensor) and not has_gaps(target):
                raise ValueError(
                    f"{function.name}: {argument.name} shares a part of its memory "
                    f"with {written.name}, which is written; pass {argument.name}.clone()"
                )
    return same


def _spans_meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() < b.data_ptr() + span_bytes(
        b
    ) and b.data_ptr() < a.data_ptr() + span_bytes(a)


def _layout(tensor: torch.Tensor):
    return (
        tensor.data_ptr(),
        span_bytes(tensor),
        tensor.element_size(),
        has_gaps(tensor) and (tensor.shape, tensor.stride()),
    )


def to_c(function: Function, values: dict[str, object], stream: int) -> list:
    """The values for ctypes, in the order of the parameters. Structs are filled."""

    def one(parameter: Parameter, structure):
        if parameter.type == "cudaStream_t":
            return ctypes.c_void_p(stream)
        if parameter.fields:
            return structure(*(values[field.name] for field in parameter.fields))
        return values[parameter.name]

    return [
        one(parameter, ctype)
        for parameter, ctype in zip(function.parameters, function.ctypes, strict=True)
    ]
