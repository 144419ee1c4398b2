"""What a kernel did, in numbers that need no GPU: `with library.count("k_cache") as counts:` fills them (checked mode)."""

import ctypes
from dataclasses import dataclass, fields


@dataclass
class Counts:
    """Of all calls within a `with library.count(...)`, added up.

    The first three are of the tensors that were named, the others of all threads:
    bytes_read: that the threads asked for; a byte that two threads ask for counts twice.
    load_instructions: of warps. One that 32 lanes execute together counts once; a lane gets 16 bytes at most from one.
    sectors: pieces of 32 bytes, in which a GPU's memory answers, that these instructions touch. 32 lanes that read 4 bytes
    each touch 4 where their bytes are neighbours, and 32 where they lie far apart.
    barriers: `__syncthreads()` of blocks; one that all threads of a block wait at counts once.
    warp_meetings: shuffles, votes and `__syncwarp()`, each once for all lanes that meet.
    steps: stretches of straight code, of all threads. A stretch may be long or short, so compare only what is alike.
    """

    bytes_read: int = 0
    load_instructions: int = 0
    sectors: int = 0
    barriers: int = 0
    warp_meetings: int = 0
    steps: int = 0

    def add(self, other: ctypes.Structure) -> None:
        """Adds what the runtime counted during one call."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class CountsOfCall(ctypes.Structure):
    """The same numbers as the runtime writes them (cuda_on_cpu/counts.h)."""

    _fields_ = [(field.name, ctypes.c_longlong) for field in fields(Counts)]
