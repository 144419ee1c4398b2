"""A machine with an NVIDIA GPU, as PyTorch and CUDA's compiler would describe it.

Its GPU runs nothing. Its nvcc is a script: it compiles a text without kernels for the CPU.
"""

import shutil
from pathlib import Path

import torch
from torch.utils import cpp_extension

NVCC = """#!/bin/sh
echo "$@" >> {folder}/calls
case "$*" in
  --list-gpu-code) {lists};;
  *" -c "*) exec c++ -std=c++17 -fPIC -include {folder}/cuda.h -x c++ -c main.cu -o main.o;;
  *) while [ "$1" != -o ]; do shift; done; exec c++ -shared main.o -o "$2";;
esac
"""
HEADER = """
typedef int cudaError_t;
typedef struct CUstream_st* cudaStream_t;
static int last_error = 0;
static int cudaGetLastError() { int last = last_error; last_error = 0; return last; }
static const char* cudaGetErrorString(int code) { return code == 9 ? "reason 9" : "another"; }
"""


class OnGpu(torch.Tensor):
    """A tensor in this process's memory that says that it is on a GPU."""

    number = 0

    @property
    def device(self):
        return torch.device("cuda", self.number)


def on_gpu(tensor: torch.Tensor, number: int = 0) -> torch.Tensor:
    tensor = tensor.as_subclass(OnGpu)
    tensor.number = number
    return tensor


class Stream:
    def __init__(self, number: int):
        self.cuda_stream = number


class GpuMachine:
    """This machine, with a GPU from `put_in` on. `folder`: where its CUDA is."""

    def __init__(self, monkeypatch, folder: Path):
        self.monkeypatch, self.folder, self.current, self.streams = (
            monkeypatch,
            folder,
            None,
            0,
        )
        self.put_in()

    def put_in(
        self,
        capability=(9, 0),
        name="a card",
        pytorch=("sm_75", "sm_120"),
        nvcc="echo sm_75 sm_90",
    ):
        """pytorch: what PyTorch has code for. nvcc: a command that lists what nvcc knows."""
        self.folder = self.folder / "cuda"  # another one, as answers of an nvcc are kept
        self.nvcc.parent.mkdir(parents=True)
        self.nvcc.write_text(NVCC.format(folder=self.folder, lists=nvcc))
        self.nvcc.chmod(0o700)
        (self.folder / "cuda.h").write_text(HEADER)
        self.set(cpp_extension, CUDA_HOME=str(self.folder))
        self.set(torch.version, cuda="13.0")
        self.set(
            torch.cuda,
            is_available=lambda: True,
            device_count=lambda: 2,
            get_device_capability=lambda *_: capability,
            get_device_name=lambda *_: name,
            get_arch_list=lambda: list(pytorch),
            device=lambda number: Current(self, number),
            current_stream=self.current_stream,
        )

    @property
    def nvcc(self) -> Path:
        return self.folder / "bin" / "nvcc"

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def set(self, module, **values):
        for name, value in values.items():
            self.monkeypatch.setattr(module, name, value)

    def without_nvcc(self):
        shutil.rmtree(self.folder)

    def current_stream(self, device) -> Stream:
        """Each time another one; those of GPU 1 have numbers from 1001 on."""
        assert device == self.current
        self.streams += 1
        return Stream(1000 * device.index + self.streams if device else self.streams)


class Current:
    """Within it, a GPU is the current one."""

    def __init__(self, machine: GpuMachine, number):
        self.machine, self.number = machine, number

    def __enter__(self):
        self.machine.current = self.number

    def __exit__(self, *_):
        self.machine.current = None
