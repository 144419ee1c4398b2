"""Parts of the ladder's kernels as functions on tensors: in checked mode, for some shapes."""

from pathlib import Path

import torch

from lessons_lib.cuda import CudaLibrary, build_cuda
from lessons_lib.inline import read_kernel
from paged_attention.bug_hunt import STEP_LIMIT
from paged_attention.ladder import Shape, shape_text

# What a group of lanes is depends on the shape: 16 lanes with a load each, 8 lanes, 32 lanes
# with two loads each, or with one.
SHAPES = {
    "half": Shape(torch.float16, 128, 4, 16),
    "bfloat16": Shape(torch.bfloat16, 64, 4, 16),
    "float": Shape(torch.float32, 256, 4, 16),
    "float, small heads": Shape(torch.float32, 128, 4, 16),
}


COMMENT = r"//.*|/\*[\s\S]*?\*/"


def group_lanes(shape: Shape) -> int:
    return min(32, shape.head_size // per_load(shape))


def per_load(shape: Shape) -> int:
    """Numbers in 16 bytes."""
    return 16 // shape.cache_dtype.itemsize


def loads_of(shape: Shape) -> int:
    """Of a lane, for its part of a row."""
    return shape.head_size // per_load(shape) // group_lanes(shape)


def own_text(name: str) -> str:
    """A file of this folder: a part of a check."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def build_all(answer: str, before: str, wrapper: str) -> dict[Shape, CudaLibrary]:
    return {shape: build(answer, shape, before, wrapper) for shape in SHAPES.values()}


def build(answer: str, shape: Shape, before: str, wrapper: str) -> CudaLibrary:
    """The checked library of `answer`, made for `shape`.

    The files of kernels/ that `before` names come before it, the check's own text after it.
    """
    texts = {f"{name}.cuh": read_kernel(f"{name}.cuh") for name in before.split()}
    texts["ladder/shape.cuh"] = shape_text(shape)
    return compiled(texts | {"your code": answer, "the check": own_text(wrapper)})


def compiled(texts: dict[str, str]) -> CudaLibrary:
    """The checked library of these texts, by the names that messages have for them."""
    library = build_cuda(*texts.values(), names=tuple(texts), target="checked", name="check")
    library.options(step_limit=STEP_LIMIT)
    return library
