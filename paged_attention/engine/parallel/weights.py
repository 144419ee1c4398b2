"""Where the weights of a model come from, a part of one at a time."""

import zlib
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from paged_attention.engine.checkpoint import check_weights
from paged_attention.engine.files import weight_files


class Weights(Protocol):
    """Gives the part of a weight, on a device of its choice."""

    def part(self, name: str, shape: torch.Size, kept: tuple[slice, ...]) -> Tensor: ...


class SavedWeights:
    """Of a folder with safetensors. Only what is asked for is read."""

    def __init__(self, folder: Path):
        self.folder, self.files = folder, weight_files(folder)

    def part(self, name: str, shape: torch.Size, kept: tuple[slice, ...]) -> Tensor:
        check_weights(self.folder, {name} - self.files.keys(), [], {})
        with safe_open(self.files[name], "pt") as opened:
            saved = opened.get_slice(name)
            shapes = tuple(saved.get_shape()), tuple(shape)
            if shapes[0] != shapes[1]:
                check_weights(self.folder, [], [], {name: shapes})
            return saved[kept]


class RandomWeights:
    """Numbers by a seed and a weight's name: the same on one rank as on several.

    A whole weight is made, and all but the rank's part is dropped, one weight after another.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, seed: int = 0):
        self.dtype, self.device, self.seed = dtype, device, seed

    def part(self, name: str, shape: torch.Size, kept: tuple[slice, ...]) -> Tensor:
        if len(shape) == 1:  # of a norm
            return torch.ones(shape, dtype=self.dtype, device=self.device)[kept]
        generator = torch.Generator(self.device).manual_seed(
            self.seed + zlib.crc32(name.encode())
        )
        whole = torch.empty(shape, dtype=self.dtype, device=self.device)
        return whole.normal_(0, 0.02, generator=generator)[kept].clone()
