"""What is missing for CUDA on a GPU, on machines that a test makes up."""

import subprocess
from types import SimpleNamespace

import pytest
import torch
from torch.utils import cpp_extension

from lessons_lib import cuda_here


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Makes this a machine on which everything is there. A test takes something away."""
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.touch()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GTX 9")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path))

    def put_in(capability=(9, 0), pytorch=("sm_75", "sm_120"), nvcc_knows="sm_75\nsm_90\n"):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(pytorch))

        def run(command, capture_output=False, text=False):
            assert command == [nvcc, "--list-gpu-code"] and capture_output and text
            return SimpleNamespace(returncode=0, stdout=nvcc_knows)

        monkeypatch.setattr(subprocess, "run", run)

    cuda_here._codes.cache_clear()
    put_in()
    yield SimpleNamespace(put_in=put_in, nvcc=nvcc, set=monkeypatch.setattr)
    cuda_here._codes.cache_clear()


def test_nothing_is_missing(machine):
    assert cuda_here.no_gpu() == ""


def test_a_pytorch_without_cuda_is_named_first(machine):
    machine.set(torch.version, "cuda", None)
    machine.set(torch.cuda, "is_available", lambda: False)
    assert cuda_here.no_gpu() == (
        "this PyTorch was built without CUDA. "
        "Install one with it: https://pytorch.org/get-started/locally"
    )


def test_a_machine_without_a_gpu_is_named_before_its_compiler(machine):
    machine.set(torch.cuda, "is_available", lambda: False)
    machine.set(cpp_extension, "CUDA_HOME", None)
    assert cuda_here.no_gpu() == (
        "PyTorch sees no NVIDIA GPU. `nvidia-smi` says whether the driver does."
    )


def no_folder(machine, monkeypatch):
    machine.set(cpp_extension, "CUDA_HOME", None)


def no_file(machine, monkeypatch):
    machine.nvcc.unlink()


def one_in_the_working_folder(machine, monkeypatch):
    """It is not the one that PyTorch would call."""
    monkeypatch.chdir(machine.nvcc.parent.parent)
    machine.set(cpp_extension, "CUDA_HOME", None)


@pytest.mark.parametrize("lacks", [no_folder, no_file, one_in_the_working_folder])
def test_a_machine_without_nvcc_hears_how_to_get_it(machine, monkeypatch, lacks):
    lacks(machine, monkeypatch)
    assert cuda_here.no_gpu() == (
        "nvcc is not installed. Install CUDA 13.0 (conda: cuda-nvcc), or set CUDA_HOME to "
        "where it is."
    )


@pytest.mark.parametrize("capability", [(7, 5), (8, 9), (12, 0), (13, 0)])
def test_the_oldest_gpu_that_is_known_will_do_and_every_newer_one(machine, capability):
    machine.put_in(capability)
    assert cuda_here.no_gpu() == ""


@pytest.mark.parametrize(
    "pytorch, nvcc_knows, words",
    [
        (("sm_120", "sm_75"), "sm_60\n", "this PyTorch knows only 7.5 and newer."),
        (
            ("sm_60", "compute_90"),
            "sm_100\nsm_86\n",
            "this nvcc ({}) knows only 8.6 and newer.",
        ),
        ((), "sm_100", "this nvcc ({}) knows only 10.0 and newer."),
        (("sm_100a",), "", "this PyTorch knows only 10.0 and newer."),
    ],
)
def test_a_gpu_that_is_too_old_is_named(machine, pytorch, nvcc_knows, words):
    machine.put_in((6, 1), pytorch, nvcc_knows)
    assert cuda_here.no_gpu() == (
        f"GTX 9 has compute capability 6.1, and {words.format(machine.nvcc)}"
    )


def missing(*_, **__):
    raise FileNotFoundError("no such file")


@pytest.mark.parametrize("code", [1, 2])
def test_an_nvcc_that_does_not_list_its_gpus_is_trusted(machine, code):
    machine.put_in((6, 1), pytorch=["sm_60"])
    failed = SimpleNamespace(returncode=code, stdout="error_99\n")
    for run in (lambda *_, **__: failed, missing):
        machine.set(subprocess, "run", run)
        cuda_here._codes.cache_clear()
        assert cuda_here.no_gpu() == ""
