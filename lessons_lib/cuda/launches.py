"""Lists the launches of a launcher: `with library.launches() as launches:` (CPU targets)."""

import ctypes
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """One `kernel<<<grid, block, shared_bytes, stream>>>(…)`, even if it was refused.

    kernel: its name as written.
    function: an address that differs between kernels of one template; 0 if only the arguments
        decide which function is meant.
    stream: 0 for the default stream.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    stream: int
    function: int


class Launches(list[Launch]):
    """Each Launch within `library.launches(...)`, and the last result, `returned`."""

    returned: int | None = None


class RecordedLaunch(ctypes.Structure):
    """A launch in the runtime's layout (cuda_on_cpu/launches.h)."""

    _fields_ = [
        ("kernel", ctypes.c_char * 128),
        ("function", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_size_t),
    ]

    def as_launch(self) -> Launch:
        return Launch(
            self.kernel.decode(errors="replace"),
            tuple(self.grid),
            tuple(self.block),
            self.shared_bytes,
            self.stream or 0,
            self.function or 0,
        )
