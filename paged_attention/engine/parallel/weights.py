"""Where the weights of a model come from, a part of one at a time."""

import json
import zlib
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from paged_attention.engine.served import UnsupportedModelError


class Weights(Protocol):
    """Gives the part of a weight, on a device of its choice."""

    def part(self, name: str, shape: torch.Size, kept: tuple[slice, ...]) -> Tensor: ...


class SavedWeights:
    """Of a folder with safetensors. Only what is asked for is read."""

    def __init__(self, folder: Path):
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            self.files = {name: folder / file for name, file in names.items()}
        else:
            self.files = {}
            for file in sorted(folder.glob("*.safetensors")):
                with safe_open(file, "pt") as opened:
                    self.files |= dict.fromkeys(opened.keys(), file)

    def part(self, name: str, shape: torch.Size, kept: tuple[slice, ...]) -> Tensor:
        if name not in self.files:
            raise UnsupportedModelError(f"the checkpoint has no weight {name!r}")
        with safe_open(self.files[name], "pt") as opened:
            saved = opened.get_slice(name)
            if tuple(saved.get_shape()) != tuple(shape):
                raise UnsupportedModelError(
                    f"the checkpoint's {name!r} has the shape {tuple(saved.get_shape())}, "
                    f"and the model wants {tuple(shape)}"
                )
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
