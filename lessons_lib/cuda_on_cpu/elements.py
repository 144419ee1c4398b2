"""Turns a byte of a tensor or a shared array into an element, as the learner writes it."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lessons_lib.cuda_on_cpu.code_text import split_at_commas

if TYPE_CHECKING:  # at run time, a program without tensors need not import PyTorch
    import torch


def tensor_index(
    shape: Sequence[int], strides: Sequence[int], element: int
) -> tuple[int, ...] | None:
    """The index of the element that lies `element` elements after a tensor's first.

    Outside the tensor, dimension 0 is out of range and the other dimensions stay in range.
    Returns None for a place between elements, in a tensor with gaps.
    """
    dimensions = sorted(
        (d for d in range(len(shape)) if strides[d] > 0), key=lambda d: -strides[d]
    )
    index, rest = _decompose(element, shape, strides, dimensions)
    if rest and dimensions:
        outer = min(dimensions)
        row, rest = divmod(element, strides[outer])
        index, rest = _decompose(rest, shape, strides, [d for d in dimensions if d != outer])
        index[outer] = row
    return tuple(index) if rest == 0 else None


def _decompose(
    element: int, shape: Sequence[int], strides: Sequence[int], dimensions: list[int]
) -> tuple[list[int], int]:
    """An index in range for `element`, and the rest that no index reaches.

    dimensions: in order, from the widest stride to the smallest.
    """
    index = [0] * len(shape)
    for dimension in dimensions:
        index[dimension] = min(max(element // strides[dimension], 0), shape[dimension] - 1)
        element -= index[dimension] * strides[dimension]
    return index, element


def tensor_element(name: str, tensor: "torch.Tensor", byte: int) -> str:
    """`k_cache[-1, 3, 0, 5]` for a byte. The byte is counted from the tensor's first one."""
    element, inside = divmod(byte, tensor.element_size())
    index = tensor_index(tensor.shape, tensor.stride(), element) if tensor.ndim else (element,)
    if index is None or inside:
        return f"byte {byte} of {name}"
    if tensor.ndim == 0 and element == 0:
        return name
    return f"{name}[{', '.join(map(str, index))}]"


def shared_element(
    name: str, byte: int, element: int, length: int, inner: tuple[int, ...] = ()
) -> str:
    """`scores[3]` for a byte of a shared array.

    element: the bytes of one element, 0 if its type is not known.
    length: the bytes of the array.
    inner: the array's sizes after the first one, as in `[8][32]`.
    """
    if not element:
        return f"byte {byte} of {name}"
    first, inside = divmod(byte, element)
    if first == 0 and length == element and not inner:
        return name if not inside else f"byte {byte} of {name}"
    index: list[int] = []
    for extent in reversed(inner):
        first, last = divmod(first, extent)
        index.insert(0, last)
    indexed = name + "".join(f"[{i}]" for i in (first, *index))
    return f"byte {byte} of {name} (in {indexed})" if inside else indexed


def allocated_name(line: str) -> str | None:
    """`buffer` for `cudaMalloc(&buffer, bytes)`; None if the line allocates several times."""
    calls = re.findall(r"\bcuda(?:Malloc\w*|HostAlloc)\s*\((.*)", line)
    if len(calls) != 1 or "cudaMalloc" in calls[0]:
        return None
    pointer = split_at_commas(calls[0])[0]
    return re.sub(
        r"^\s*(?:\(\s*void\s*\*\s*\*\s*\)|reinterpret_cast<.*>\()?\s*&?", "", pointer
    ).strip(" )")


def inner_sizes(name: str, texts: dict[str, str], source: str, line: int) -> tuple[int, ...]:
    """The sizes after the first of `__shared__ float name[8][32]`, if they are constants.

    source, line: where the array is used. Its declaration is the last one before that line.
    """
    before = "\n".join(texts[source].split("\n")[:line])
    declared = list(
        re.finditer(
            rf"__shared__[^;]*?\b{re.escape(name)}\s*((?:\[[^\];]*\]\s*)+)[,;]", before
        )
    )
    if not declared:
        return ()
    everything = "\n".join(texts.values())
    words = re.findall(r"\[([^\]]*)\]", declared[-1][1])[1:]
    sizes = []
    for word in words:
        size = 0
        for summand in word.split("+"):
            number = _constant(summand.strip(), everything)
            if number is None:
                return ()
            size += number
        sizes.append(size)
    return tuple(sizes)


def _constant(word: str, code: str) -> int | None:
    if word.isdigit():
        return int(word)
    values = re.findall(
        rf"(?:\bconstexpr\b[^;=]*\b{re.escape(word)}\s*=|#define\s+{re.escape(word)}\b)\s*(\d+)\b",
        code,
    )
    return int(values[0]) if word.isidentifier() and len(set(values)) == 1 else None
