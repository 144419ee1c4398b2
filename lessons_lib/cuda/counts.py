"""Counts a kernel's work: `with library.count("k_cache") as counts:` (checked mode)."""

import ctypes
from dataclasses import dataclass, fields


@dataclass
class Counts:
    """Sums over all calls within a `with library.count(...)`.

    The first three count only accesses to the named tensors; the others count all threads.

    bytes_read: bytes that threads asked for. A byte that two threads ask for counts twice.
    load_instructions: loads of warps. A load that 32 lanes execute together counts once. One
        load gives a lane 16 bytes at most.
    sectors: pieces of 32 bytes that these loads touch; a GPU's memory answers in sectors. If
        32 lanes read 4 bytes each, they touch 4 sectors when the bytes are neighbours, and
        32 when they are far apart.
    barriers: `__syncthreads()`, once for each time that a whole block waits there.
    warp_meetings: shuffles, votes and `__syncwarp()`, once for all lanes that meet.
    steps: stretches of straight code, over all threads. Their lengths differ, so compare
        only similar kernels.
    """

    bytes_read: int = 0
    load_instructions: int = 0
    sectors: int = 0
    barriers: int = 0
    warp_meetings: int = 0
    steps: int = 0

    def add(self, other: ctypes.Structure) -> None:
        """Adds the runtime's counts of one call."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class CountsOfCall(ctypes.Structure):
    """The same numbers in the runtime's layout (cuda_on_cpu/counts.h)."""

    _fields_ = [(field.name, ctypes.c_longlong) for field in fields(Counts)]
