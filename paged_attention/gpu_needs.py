"""Which GPUs a kernel can run on: the least compute capability, and why.

A compute capability is NVIDIA's number for the instructions that a GPU has. 7.5 is Turing (T4,
RTX 20), 8.0 Ampere (A100), 8.6 RTX 30, 8.9 Ada (RTX 40, L4), 9.0 Hopper (H100).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

Capability = tuple[int, int]


@dataclass(frozen=True)
class Need:
    """What a kernel needs of a GPU.

    capability: the least compute capability.
    reason: what an older GPU lacks; "" if the kernel runs on every GPU that can be compiled
        for.
    only: whether newer GPUs lack it too.
    """

    capability: Capability
    reason: str
    only: bool = False

    def met_by(self, has: Capability) -> bool:
        return has == self.capability if self.only else has >= self.capability

    def __str__(self):
        if not self.reason:
            return "any"
        return f"{in_words(self.capability)}{'' if self.only else ' or more'}"


EVERY = Need((0, 0), "")
_PRODUCTS = "large matrix products (mma.m16n8k16)"
PRODUCTS = Need((8, 0), f"{_PRODUCTS} came with Ampere")
COPIES = Need((8, 0), f"background copies (cp.async) and {_PRODUCTS} came with Ampere")
GROUPS = Need((9, 0), "products by groups of four warps (wgmma) are Hopper's own", only=True)
EARLY = Need((9, 0), "kernels that begin early (griddepcontrol) came with Hopper")
EIGHT_BITS = Need((8, 9), "conversions of 8-bit numbers (cvt.f16x2.e4m3x2) came with Ada")


def lack(need: Need, of_the_ladder: Sequence[Need]) -> str:
    """Says what this machine's GPU lacks for a kernel; "" if it can run it.

    of_the_ladder: what each rung of the kernel's ladder needs, from rung 0 on.
    """
    has = torch.cuda.get_device_capability()
    if need.met_by(has):
        return ""
    able = [str(n) for n, other in enumerate(of_the_ladder) if other.met_by(has)]
    return (
        f"needs a GPU of compute capability {need}, "
        f"and {torch.cuda.get_device_name()} has {in_words(has)}: {need.reason}. "
        f"Rungs {', '.join(able[:-1])} and {able[-1]} run on it."
    )


def lack_of(need: Need, device: torch.device) -> str:
    """Says what a GPU lacks for a part of an engine; "" if it lacks nothing, and for a CPU."""
    if device.type != "cuda":
        return ""
    has = torch.cuda.get_device_capability(device)
    if need.met_by(has):
        return ""
    return f"needs a GPU of compute capability {need}, not {in_words(has)}: {need.reason}"


def in_words(capability: Capability) -> str:
    return ".".join(map(str, capability))
