"""Checked mode on a bank of kernels: faults are named with their line on every schedule, right
kernels pass in silence.
"""

import functools
import re
import shutil
import subprocess
from collections import Counter

import pytest
import torch

from cuda_bank import Right, fault_lines, files, source
from cuda_bank.faulty import FAULTY
from cuda_bank.right import RIGHT
from cuda_text import each_target, error_of
from lessons_lib.cuda.arguments import span_bytes
from lessons_lib.cuda.library import build_cuda
from lessons_lib.cuda_on_cpu.reports import KernelError
from lessons_lib.paths import KERNELS

KINDS = {
    *("race", "missing-syncwarp", "non-atomic-update", "race-between-blocks"),
    *("divergent-barrier", "absent-lane", "block-table", "out-of-bounds", "misaligned"),
    *("shared-out-of-bounds", "shared-uninitialised", "dynamic-shared-too-small"),
    *("write-to-input", "output-unwritten", "output-read", "no-address", "host-access"),
    *("division-by-zero", "stack-overflow", "no-end", "assertion", "bad-launch"),
}
SCHEDULES = range(4)
STEPS = 100_000
PARTS = 4
BARRIER = re.compile(r"\b(?:__sync(?P<block>threads)\(\)|__syncwarp\(\)|tile\.sync\(\));")


@functools.cache
def right(target: str):
    """All right kernels in one library."""
    return built({file: source(file) for file in files() if is_right(file)}, target, "right")


@functools.cache
def faulty(part: int):
    """Each fourth of the faulty kernels: those of a sample are in one library."""
    texts = {case.file: source(case.file) for case in FAULTY[part::PARTS]}
    return built(texts, "checked", f"faulty_{part}")


def is_right(file: str) -> bool:
    return file.startswith("right_")


def built(texts: dict[str, str], target: str, name: str):
    """A library of texts by their names without .cu."""
    names = tuple(f"{file}.cu" for file in texts)
    return build_cuda(*texts.values(), names=names, target=target, name=f"cuda_bank_{name}")


def numbered(cases) -> list:
    """The cases, each with a readable name."""
    seen, named = Counter(), []
    for case in cases:
        seen[case.file] += 1
        number = f"-{seen[case.file]}" if seen[case.file] > 1 else ""
        named.append(pytest.param(case, id=f"{case.file}{number}"))
    return named


def call(library, function: str, arguments: dict, seed: int):
    """Calls on one schedule. A loop counts as endless after fewer steps than usual, to be
    quick.
    """
    if library.target != "gpu":
        library.options(seed=seed, step_limit=STEPS)
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
    length = span_bytes(tensor) // tensor.element_size()
    whole = tensor.as_strided((length,), (1,)).cuda()  # its elements may overlap
    return whole.as_strided(tensor.shape, tensor.stride(), 0)


def assert_same(tensor, expected, name):
    """Floats nearly, all else exactly; what is NaN in both is the same."""
    close = {"rtol": 1e-4, "atol": 1e-4} if tensor.dtype == torch.float32 else {}
    torch.testing.assert_close(
        tensor, expected, equal_nan=True, msg=lambda text: f"{name}: {text}", **close
    )


TREE_SUM = next(right for right in RIGHT if right.file == "right_tree_sum")


@pytest.mark.sampled(PARTS)
@pytest.mark.parametrize("case", numbered(FAULTY))
def test_a_faulty_kernel_is_named(case):
    """On every schedule: kind, line, block and thread; the caller's tensors stay as they are,
    and the next call works.
    """
    library = faulty(FAULTY.index(case) % PARTS)
    for seed in SCHEDULES:
        arguments = case.arguments()
        before = copies(arguments)
        found = error_of(call, library, case.file, arguments, seed)
        assert_names(found, case)
        for name, tensor in before.items():
            assert torch.equal(arguments[name].view(torch.uint8), tensor.view(torch.uint8)), (
                f"{name} has changed"
            )
        assert_right(TREE_SUM, "checked", seed)


def assert_names(error: KernelError, case):
    text, lines = str(error), fault_lines(case.file)
    assert error.kind in case.kinds.split(), text
    if lines:
        assert error.line in lines and error.source == f"{case.file}.cu", text
        quoted = source(case.file).splitlines()[error.line - 1].strip()
        assert f"{case.file}.cu, line {error.line}: {quoted}" in text
    else:
        assert error.line is None, text
    for attribute in ("block", "thread", "name"):
        expected, found = getattr(case, attribute), getattr(error, attribute)
        assert found == expected or expected is None, (text, attribute, found)
    assert case.name is None or case.name in text
    steps = re.search(r"still running after (\d+) steps", text)
    assert steps is None or int(steps[1]) == STEPS
    has_place = error.kind not in ("output-unwritten", "bad-launch", "host-access")
    assert (None not in (error.block, error.thread)) == has_place, text
    if has_place:
        assert "block " in text and "thread " in text
        assert error.kernel == f"{case.file}_kernel"


@each_target
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
    call(right(target), case.file, arguments, seed)
    for name, tensor in expected.items():
        assert_same(arguments[name].cpu(), tensor, name)


def test_the_bank_has_every_kind_and_each_file_is_called():
    assert {kind for case in FAULTY for kind in case.kinds.split()} == KINDS
    assert sorted({case.file for case in (*FAULTY, *RIGHT)}) == files()


def without_barrier(file: str, number: int) -> tuple[str, str]:
    """A right kernel without one of its barriers, under names of its own, such as
    right_scan_1; and what is then found.
    """
    text = source(file)
    barrier = list(BARRIER.finditer(text))[number]
    text = text[: barrier.start()] + text[barrier.end() :]
    own_names = rf"\b({file}|{''.join(map(str.capitalize, file.split('_')))})(?=_|\b)"
    expected = "race" if barrier["block"] else "missing-syncwarp"
    return re.sub(own_names, rf"\1_{number}", text), expected


DELETIONS = {
    (file, number): without_barrier(file, number)
    for file in filter(is_right, files())
    for number in range(len(BARRIER.findall(source(file))))
}


@functools.cache
def without_barriers(part: int):
    chosen = [*DELETIONS.items()][part::PARTS]
    texts = {f"{file}_{number}": text for (file, number), (text, _) in chosen}
    return built(texts, "checked", f"without_barriers_{part}")


@pytest.mark.sampled(PARTS)
@pytest.mark.parametrize("file, number", DELETIONS)
def test_deleting_a_barrier_of_a_right_kernel_is_caught(file, number):
    _, expected = DELETIONS[file, number]
    library = without_barriers([*DELETIONS].index((file, number)) % PARTS)
    for seed in SCHEDULES:
        kinds = set()
        for case in (case for case in RIGHT if case.file == file):
            try:
                call(library, f"{file}_{number}", case.arguments(), seed)
            except KernelError as error:
                kinds.add(error.kind)
        assert expected in kinds and kinds <= {"race", "missing-syncwarp"}, (seed, kinds)


needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
# As PyTorch calls nvcc: half types convert only where the text says so.
AS_PYTORCH = [
    f"-D__CUDA_NO_{what}__"
    for what in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS")
]


def assert_compiles(path):
    """For sm_80, sm_90 and the newest that this nvcc knows."""
    list_codes = ["nvcc", "--list-gpu-code"]
    listed = subprocess.run(list_codes, capture_output=True, text=True, check=True).stdout
    newest = max((code.removeprefix("sm_") for code in listed.split()), key=int)
    codes = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in sorted({"80", "90", newest})]
    command = ["nvcc", "-c", "-std=c++17", "--threads=2", *codes, *AS_PYTORCH]
    built = subprocess.run([*command, "-o", "/dev/null", path], capture_output=True, text=True)
    assert built.returncode == 0 and "error" not in built.stderr, built.stderr


@needs_nvcc
@pytest.mark.slow
def test_nvcc_compiles_the_bank(tmp_path):
    """All files as one, which takes far less time than one after the other."""
    together = tmp_path / "bank.cu"
    together.write_text("".join(f'#line 1 "{file}.cu"\n{source(file)}\n' for file in files()))
    assert_compiles(together)


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize(
    "file", sorted(path.name for path in KERNELS.glob("*.cu") if path.name != "tensor_form.cu")
)
def test_nvcc_compiles_our_own_kernels(file):
    assert_compiles(KERNELS / file)
