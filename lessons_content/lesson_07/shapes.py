"""The shapes for which the ladder's parts are built."""

import torch

from paged_attention.ladder.decode import Shape

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


def loads_of(shape: Shape) -> int:
    """Of a lane, for its part of a row."""
    return shape.head_size // per_load(shape) // group_lanes(shape)
