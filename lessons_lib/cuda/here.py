"""Whether this machine can build and run CUDA on a GPU, and if not, what is missing."""

import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path


def no_gpu() -> str:
    """Says what is missing for a GPU build, and how to get it; "" if nothing is."""
    import torch
    from torch.utils import cpp_extension

    if torch.version.cuda is None:
        return (
            "this PyTorch was built without CUDA. "
            "Install one with it: https://pytorch.org/get-started/locally"
        )
    if not torch.cuda.is_available():
        return "PyTorch sees no NVIDIA GPU. `nvidia-smi` says whether the driver does."
    nvcc = Path(cpp_extension.CUDA_HOME or "") / "bin" / "nvcc"
    if not cpp_extension.CUDA_HOME or not nvcc.exists():
        return (
            f"nvcc is not installed. Install CUDA {torch.version.cuda} (conda: "
            "cuda-nvcc), or set CUDA_HOME to where it is."
        )
    return _too_old(torch.cuda.get_arch_list(), "this PyTorch") or _too_old(
        _codes(nvcc), f"this nvcc ({nvcc})"
    )


def _too_old(codes: Iterable[str], whose: str) -> str:
    """Says that this machine's GPU is older than any that `whose` has code for; else ""."""
    import torch

    has = torch.cuda.get_device_capability()
    known = [divmod(int(number), 10) for number in re.findall(r"_(\d+)", " ".join(codes))]
    if not known or has >= min(known):
        return ""
    words = "{0[0]}.{0[1]}".format
    return (
        f"{torch.cuda.get_device_name()} has compute capability {words(has)}, "
        f"and {whose} knows only {words(min(known))} and newer."
    )


@cache
def _codes(nvcc: Path) -> tuple[str, ...]:
    """The architectures that an nvcc compiles for, such as sm_75; empty if it does not say."""
    try:
        listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True)
    except OSError:
        return ()
    return tuple(listed.stdout.split()) if listed.returncode == 0 else ()
