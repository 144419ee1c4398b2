"""What is missing for CUDA on a GPU, on machines that a test makes up."""

import pytest
import torch
from torch.utils import cpp_extension

from cuda_machine import GpuMachine
from lessons_lib.cuda.here import no_gpu


@pytest.fixture
def machine(monkeypatch, tmp_path):
    return GpuMachine(monkeypatch, tmp_path)


def test_what_is_missing_first_is_said_first(machine, monkeypatch):
    assert no_gpu() == ""
    monkeypatch.chdir(machine.folder)  # not the nvcc that PyTorch would call
    machine.set(cpp_extension, CUDA_HOME=None)
    nvcc = "nvcc is not installed. Install CUDA 13.0 (conda: cuda-nvcc), or set CUDA_HOME to "
    assert no_gpu() == f"{nvcc}where it is."
    machine.set(torch.cuda, is_available=lambda: False)
    assert no_gpu() == "PyTorch sees no NVIDIA GPU. `nvidia-smi` says whether the driver does."
    machine.set(torch.version, cuda=None)
    assert no_gpu() == (
        "this PyTorch was built without CUDA. "
        "Install one with it: https://pytorch.org/get-started/locally"
    )


def test_a_folder_without_nvcc_is_as_none(machine):
    machine.without_nvcc()
    assert no_gpu().startswith("nvcc is not installed.")


@pytest.mark.parametrize("capability", [(7, 5), (8, 9), (12, 0), (13, 0)])
def test_the_oldest_gpu_that_is_known_will_do_and_every_newer_one(machine, capability):
    machine.put_in(capability)
    assert no_gpu() == ""


@pytest.mark.parametrize(
    "pytorch, nvcc, words",
    [
        (("sm_120", "sm_75"), "echo sm_60", "this PyTorch knows only 7.5 and newer."),
        (
            ("sm_60", "compute_90"),
            "echo sm_100 sm_86",
            "this nvcc ({}) knows only 8.6 and newer.",
        ),
        ((), "echo sm_100", "this nvcc ({}) knows only 10.0 and newer."),
        (("sm_100a",), "echo", "this PyTorch knows only 10.0 and newer."),
    ],
)
def test_a_gpu_that_is_too_old_is_named(machine, pytorch, nvcc, words):
    machine.put_in((6, 1), "GTX 9", pytorch, nvcc)
    assert no_gpu() == f"GTX 9 has compute capability 6.1, and {words.format(machine.nvcc)}"


@pytest.mark.parametrize("nvcc", ["echo error_99; exit 1", "exit 2"])
def test_an_nvcc_that_does_not_list_its_gpus_is_trusted(machine, nvcc):
    machine.put_in((6, 1), pytorch=["sm_60"], nvcc=nvcc)
    assert no_gpu() == ""


def test_an_nvcc_that_cannot_run_is_trusted_until_it_is_called(machine):
    machine.put_in((6, 1), pytorch=["sm_60"])
    machine.nvcc.write_text("#!/no/such/shell\n")
    assert no_gpu() == ""
