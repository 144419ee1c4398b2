"""Checked mode on a bank of kernels: faults are named with their line on every schedule, right
kernels pass in silence.
"""

import functools
import re
import shutil
import subprocess

import pytest
import torch

from cuda_bank import Right, fault_lines, files, source
from cuda_bank.faulty import FAULTY
from cuda_bank.right import RIGHT
from lessons_lib.cuda import build_cuda
from lessons_lib.cuda_on_cpu.reports import KernelError
from lessons_lib.paths import KERNELS

KINDS = [
    "race",
    "missing-syncwarp",
    "non-atomic-update",
    "race-between-blocks",
    "divergent-barrier",
    "absent-lane",
    "shared-out-of-bounds",
    "shared-uninitialised",
    "dynamic-shared-too-small",
    "block-table",
    "out-of-bounds",
    "write-to-input",
    "output-unwritten",
    "output-read",
    "no-address",
    "misaligned",
    "host-access",
    "division-by-zero",
    "stack-overflow",
    "no-end",
    "assertion",
    "bad-launch",
]
SCHEDULES = range(4)
BARRIER = re.compile(r"\b(?:__sync(?P<block>threads)\(\)|__syncwarp\(\)|tile\.sync\(\));")


@functools.cache
def bank(target: str):
    """All kernels of the bank in one library. Faulty ones only if they can do no harm."""
    chosen = [file for file in files() if target == "checked" or file.startswith("right_")]
    return build_cuda(
        *map(source, chosen),
        names=tuple(f"{file}.cu" for file in chosen),
        target=target,
        name="cuda_bank",
    )


def numbered(cases):
    """The cases, each with a readable name."""
    names = [case.file for case in cases]
    return [
        pytest.param(
            case, id=f"{case.file}-{number}" if names.count(case.file) > 1 else case.file
        )
        for number, case in enumerate(cases)
    ]


def call(library, function: str, arguments: dict, seed: int):
    """Calls on one schedule. A loop counts as endless after fewer steps than usual, to be
    quick.
    """
    if library.target != "gpu":
        library.options(seed=seed, step_limit=100_000)
    getattr(library, function)(**arguments)


def copies(arguments: dict) -> dict:
    return {
        name: value.clone()
        for name, value in arguments.items()
        if isinstance(value, torch.Tensor)
    }


def on_the_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides: kernels are told of them, and `.cuda()` would close the
    gaps.
    """
    span = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return tensor.as_strided((span,), (1,)).cuda().as_strided(tensor.shape, tensor.stride())


def assert_same(tensor, expected, name):
    """Floats nearly, all else exactly; what is NaN in both is the same."""
    close = {"rtol": 1e-4, "atol": 1e-4} if tensor.dtype == torch.float32 else {}
    torch.testing.assert_close(
        tensor, expected, equal_nan=True, msg=lambda text: f"{name}: {text}", **close
    )


@pytest.mark.parametrize("case", numbered(FAULTY))
def test_a_faulty_kernel_is_named(case):
    """On every schedule: kind, line, block and thread; the caller's tensors stay as they are,
    and the next call works.
    """
    for seed in SCHEDULES:
        arguments = case.arguments()
        before = copies(arguments)
        with pytest.raises(KernelError) as caught:
            call(bank("checked"), case.file, arguments, seed)
        assert_names(caught.value, case)
        for name, tensor in before.items():
            assert torch.equal(arguments[name].view(torch.uint8), tensor.view(torch.uint8)), (
                f"{name} has changed"
            )
        assert_right(
            next(right for right in RIGHT if right.file == "right_tree_sum"), "checked", seed
        )


def assert_names(error: KernelError, case):
    text = str(error)
    assert error.kind in case.kinds.split(), text
    lines = fault_lines(case.file)
    assert (
        (error.line in lines and error.source == f"{case.file}.cu")
        if lines
        else error.line is None
    ), text
    if lines:
        assert (
            f"{case.file}.cu, line {error.line}: "
            f"{source(case.file).splitlines()[error.line - 1].strip()}" in text
        )
    has_place = error.kind not in ("output-unwritten", "bad-launch", "host-access")
    for attribute in ("block", "thread", "name"):
        expected, found = getattr(case, attribute), getattr(error, attribute)
        assert found == expected or expected is None, (text, attribute, found)
    assert (None not in (error.block, error.thread)) == has_place, text
    assert not has_place or ("block " in text and "thread " in text)
    assert case.name is None or case.name in text
    assert error.kernel == f"{case.file}_kernel" or not has_place


on_gpu = pytest.param(
    "gpu",
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
)


@pytest.mark.parametrize("target", ["checked", "fast", on_gpu])
@pytest.mark.parametrize("case", numbered(RIGHT))
def test_a_right_kernel_passes_in_silence(case, target):
    for seed in [0] if target == "gpu" else SCHEDULES:
        assert_right(case, target, seed)


def assert_right(case: Right, target: str, seed: int):
    """Runs the kernel, and compares each of its tensors: with what PyTorch computes, or with
    itself before the call.
    """
    given = case.arguments()
    expected = copies(given) | case.expected(given)
    arguments = case.arguments()
    if target == "gpu":
        arguments = {
            name: on_the_gpu(value) if isinstance(value, torch.Tensor) else value
            for name, value in arguments.items()
        }
    call(bank(target), case.file, arguments, seed)
    for name, tensor in expected.items():
        assert_same(arguments[name].cpu(), tensor, name)


def test_the_bank_is_large_and_has_every_kind():
    assert (
        len({case.file for case in FAULTY}) >= 40 and len({case.file for case in RIGHT}) >= 20
    )
    assert {kind for case in FAULTY for kind in case.kinds.split()} == set(KINDS)
    assert sorted({case.file for case in (*FAULTY, *RIGHT)}) == files()


@pytest.mark.parametrize("file", files())
def test_a_file_of_the_bank_is_in_order(file):
    text = source(file)
    assert text.startswith("// ") and 10 <= text.count("\n") <= 40
    assert f'extern "C" int {file}(' in text
    unwritten = any(case.file == file and case.kinds == "output-unwritten" for case in FAULTY)
    assert bool(fault_lines(file)) != (unwritten or file.startswith("right_"))


def _without(text: str, barrier: re.Match) -> str:
    return text[: barrier.start()] + text[barrier.end() :]


def _deletions():
    """Each barrier of a right kernel: the file, which one it is in it, and what is found when
    it is deleted.
    """
    return [
        pytest.param(
            file,
            number,
            "race" if barrier["block"] else "missing-syncwarp",
            id=f"{file}-{number}",
        )
        for file in files()
        if file.startswith("right_")
        for number, barrier in enumerate(BARRIER.finditer(source(file)))
    ]


@functools.cache
def _bank_without_barriers():
    """A library of right kernels with each barrier deleted in turn: right_scan_1 is right_scan
    without its second one.
    """
    texts = {}
    for file, number, _ in (deletion.values for deletion in _deletions()):
        barrier = list(BARRIER.finditer(source(file)))[number]
        own_names = rf"\b({file}|{''.join(map(str.capitalize, file.split('_')))})(?=_|\b)"
        texts[f"{file}_{number}.cu"] = re.sub(
            own_names, rf"\1_{number}", _without(source(file), barrier)
        )
    return build_cuda(
        *texts.values(),
        names=tuple(texts),
        target="checked",
        name="cuda_bank_without_barriers",
    )


@pytest.mark.parametrize("file, number, expected", _deletions())
def test_deleting_a_barrier_of_a_right_kernel_is_caught(file, number, expected):
    for seed in SCHEDULES:
        kinds = set()
        for case in (case for case in RIGHT if case.file == file):
            try:
                call(_bank_without_barriers(), f"{file}_{number}", case.arguments(), seed)
            except KernelError as error:
                kinds.add(error.kind)
        assert expected in kinds and kinds <= {"race", "missing-syncwarp"}, (seed, kinds)


needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
# As PyTorch calls nvcc: half types convert only where the text says so.
_AS_PYTORCH = [
    f"-D__CUDA_NO_{what}__"
    for what in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS")
]


def _nvcc(path):
    """Compiles for sm_80, sm_90 and the newest that this nvcc knows."""
    listed = subprocess.run(
        ["nvcc", "--list-gpu-code"], capture_output=True, text=True, check=True
    ).stdout.split()
    architectures = sorted(
        {"80", "90", max((code.removeprefix("sm_") for code in listed), key=int)}, key=int
    )
    codes = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in architectures]
    built = subprocess.run(
        [
            "nvcc",
            "-c",
            "-std=c++17",
            "--threads=2",
            *codes,
            *_AS_PYTORCH,
            "-o",
            "/dev/null",
            str(path),
        ],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0 and "error" not in built.stderr, built.stderr


@needs_nvcc
@pytest.mark.slow
def test_nvcc_compiles_the_bank(tmp_path):
    """All files as one, which takes far less time than one after the other."""
    together = tmp_path / "bank.cu"
    together.write_text("".join(f'#line 1 "{file}.cu"\n{source(file)}\n' for file in files()))
    _nvcc(together)


@needs_nvcc
@pytest.mark.parametrize(
    "file", sorted(path.name for path in KERNELS.glob("*.cu") if path.name != "tensor_form.cu")
)
def test_nvcc_compiles_our_own_kernels(file):
    _nvcc(KERNELS / file)
