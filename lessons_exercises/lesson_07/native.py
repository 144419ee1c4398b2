"""Device functions of the ladder's first rungs as functions on tensors.

They are built for checked mode and for several shapes.
"""

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


def group_lanes(shape: Shape) -> int:
    return min(32, shape.head_size // per_load(shape))


def per_load(shape: Shape) -> int:
    """Numbers in 16 bytes."""
    return 16 // shape.cache_dtype.itemsize


def build(answer: str, shape: Shape, before: tuple[str, ...], wrapper: str) -> CudaLibrary:
    """The checked library of `answer`, made for `shape`.

    The files of kernels/ come before it, and the check's own text after it.
    """
    texts = {name: read_kernel(name) for name in before}
    texts["ladder/shape.cuh"] = shape_text(shape)
    texts["your code"] = answer
    texts["the check"] = (Path(__file__).parent / wrapper).read_text(encoding="utf-8")
    library = build_cuda(*texts.values(), names=tuple(texts), target="checked", name="check")
    library.options(step_limit=STEP_LIMIT)
    return library
