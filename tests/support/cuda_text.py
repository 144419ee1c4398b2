"""What tests that write CUDA share: launchers, the targets, and the line of some words."""

import re

import pytest
import torch

ON_CPU = ("fast", "checked")
on_gpu = pytest.param(
    "gpu",
    marks=pytest.mark.gpu,
)
on_cpu = pytest.mark.parametrize("target", ON_CPU)
each_target = pytest.mark.parametrize("target", [*ON_CPU, on_gpu])


def launcher(
    declaration: str,
    blocks="1",
    threads="1",
    arguments: str | None = None,
    *,
    shared_bytes="0",
    kernel: str = "",
) -> str:
    """The text of a function that launches a kernel and returns CUDA's error.

    declaration: its name and its parameters but the stream, such as `add(int* x, int n)`.
    blocks, threads, shared_bytes: of the launch, in C++.
    arguments: what the kernel gets; None for all parameters.
    kernel: its name, if that is not the function's with `_kernel` at its end.
    """
    name, _, parameters = declaration.removesuffix(")").partition("(")
    if arguments is None:
        arguments = ", ".join(re.findall(r"(\w+)(?=,|$)", parameters))
    return f"""
extern "C" int {name}({parameters}, cudaStream_t stream) {{
  {kernel or f"{name}_kernel"}<<<{blocks}, {threads}, {shared_bytes}, stream>>>({arguments});
  return cudaGetLastError();
}}
"""


def device_of(target: str) -> str:
    return "cuda" if target == "gpu" else "cpu"


def integers(target: str, *shape: int, value: int = 0) -> torch.Tensor:
    """Integers of 32 bits where a kernel of this target can have them."""
    return torch.full(shape, value, dtype=torch.int32, device=device_of(target))


def line_of(text: str, words: str) -> int:
    """The number of the only line that has these words."""
    (found,) = [number for number, line in enumerate(text.split("\n"), 1) if words in line]
    return found
