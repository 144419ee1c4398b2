"""What tests that write CUDA share: launchers, the targets, kernels and their errors."""

import re

import pytest
import torch

from lessons_lib import KernelError, build_cuda

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


class Kernels:
    """The CUDA text of a test. Called with a target, it gives the library; a process builds it
    once.
    """

    def __init__(self, text: str, name: str):
        self.text, self.name, self.built = text, name, {}

    def __call__(self, target: str = "checked"):
        if target not in self.built:
            self.built[target] = build_cuda(self.text, target=target, name=self.name)
        return self.built[target]

    def line(self, words: str) -> int:
        """The number of the only line that has these words."""
        lines = self.text.split("\n")
        (found,) = [number for number, line in enumerate(lines, 1) if words in line]
        return found


def error_of(call, *arguments, **named) -> KernelError:
    """What is said of a kernel by this call, which has to fail."""
    with pytest.raises(KernelError) as caught:
        call(*arguments, **named)
    return caught.value
