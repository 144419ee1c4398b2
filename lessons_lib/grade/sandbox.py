"""One sandbox for one submission (being written)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one submission may take. Seconds are of real time; bytes are of memory in all its processes together."""

    cell_seconds: float = 60.0
    notebook_seconds: float = 300.0
    memory: int = 6 << 30
    processes: int = 64
    output: int = 10 << 20
    files: int = 1 << 30
    sandboxed: bool = True


def missing() -> str | None:
    """Why there is no sandbox on this machine, in a sentence that says what to install; None where there is one."""
    return None
