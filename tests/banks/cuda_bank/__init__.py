"""A bank of CUDA kernels, one in each file: those with one fault, as learners make them, and
right ones of different style.

A file's function and all its other names begin with the file's name, so that all files
together compile as one. A line that an error may name ends with `// FAULT`. `faulty.py` and
`right.py` say how each is called, and what must come of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Faulty:
    """A kernel with a fault. `kinds`: those of KernelError that are true, mostly one.
    `thread`, `block` and `name`: what the error has to name, where it can only be one.
    """

    file: str
    kinds: str
    arguments: Callable[[], dict]
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    name: str | None = None


@dataclass(frozen=True)
class Right:
    """A kernel without a fault. `expected`: from the arguments, before the call, to the
    tensors that the call leaves.
    """

    file: str
    arguments: Callable[[], dict]
    expected: Callable[[dict], dict]


def source(file: str) -> str:
    return (FOLDER / f"{file}.cu").read_text(encoding="utf-8")


def fault_lines(file: str) -> list[int]:
    """The lines that end with `// FAULT`, and those below a line that says only this."""
    return [
        number + (line.strip() == "// FAULT")
        for number, line in enumerate(source(file).splitlines(), 1)
        if line.endswith("// FAULT")
    ]


def files() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.cu"))


def numbers(*shape: int, dtype=torch.float32) -> torch.Tensor:
    """Random numbers, the same ones each time and on each device. `shape`: of the result;
    integers are 0 to 7.
    """
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    if dtype.is_floating_point:
        values = torch.randn(shape, generator=generator, device="cpu").to(dtype)
    else:
        values = torch.randint(0, 8, shape, generator=generator, dtype=dtype, device="cpu")
    return values.to(torch.get_default_device())


def blank(*shape: int, dtype=torch.float32) -> torch.Tensor:
    """An output: filled with what no kernel of the bank computes."""
    if dtype == torch.bool:
        return torch.zeros(shape, dtype=dtype)
    return torch.full(shape, float("nan") if dtype.is_floating_point else 99, dtype=dtype)


def integers(*values, dtype=torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)
