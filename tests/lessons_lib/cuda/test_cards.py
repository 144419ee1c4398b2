"""GPUs before Ampere: what runs on them, and what says that it cannot, before a launch."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from cuda_machine import GpuMachine
from lessons_content.lesson_07.bench import backends
from lessons_content.lesson_09.bench import prefill
from lessons_lib.paths import KERNELS
from paged_attention import which_rungs
from paged_attention.engine.paths import choose_path
from paged_attention.gpu_needs import COPIES, EIGHT_BITS, EVERY, GROUPS, PRODUCTS
from paged_attention.ladder.rungs import FP8, RUNGS, Shape, check_card, rung_library
from paged_attention.prefill.rungs import (
    PREFILL_RUNGS,
    best_prefill_rung,
    check_prefill_card,
    prefill_library,
)

T4, A100, RTX_30, L4, H100, B200 = (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0)
ALL_RUNGS = (*RUNGS, *PREFILL_RUNGS)


@pytest.fixture
def card(monkeypatch, tmp_path):
    """Makes this machine one with a GPU, for all questions that come before a launch."""
    return GpuMachine(monkeypatch, tmp_path).put_in


def refused(check, *arguments) -> bool:
    try:
        check(*arguments)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    ("capability", "decodes", "prompts"),
    [
        ((7, 0), {0, 1, 2, 3}, {0, 1}),
        (T4, {0, 1, 2, 3}, {0, 1}),
        (A100, {0, 1, 2, 3, 4, 5, 6, 7, 9}, {0, 1, 2, 3, 4}),
        (RTX_30, {0, 1, 2, 3, 4, 5, 6, 7, 9}, {0, 1, 2, 3, 4}),
        (L4, set(range(10)), set(range(5))),
        (H100, set(range(10)), set(range(6))),
        (B200, set(range(10)), set(range(5))),
    ],
)
def test_which_rungs_a_card_runs(card, capability, decodes, prompts):
    card(capability, pytorch=["sm_70"], nvcc="echo sm_70")
    assert {n for n in range(10) if not refused(check_card, n, "gpu")} == decodes
    assert {n for n in range(6) if not refused(check_prefill_card, n, "gpu")} == prompts
    assert refused(check_card, 9, "gpu", FP8) == (capability < L4)


def test_a_rung_that_a_card_cannot_run_says_why_and_which_can(card):
    card(T4, "Tesla T4")
    with pytest.raises(
        ValueError,
        match=r"^rung 7 needs a GPU of compute capability 8\.0 or more, and Tesla T4 has "
        r"7\.5: background copies \(cp\.async\) and large matrix products "
        r"\(mma\.m16n8k16\) came with Ampere\. Rungs 0, 1, 2 and 3 run on it\.$",
    ):
        rung_library(7, Shape(torch.float16, 128, 4, 16, shared_bytes=65_536))
    with pytest.raises(
        ValueError,
        match=r"^rung 4 of the prefill ladder needs .* 8\.0 .*Rungs 0 and 1 run on it\.$",
    ):
        prefill_library(4, Shape(torch.float16, 128, 4, 16, shared_bytes=65_536))


def test_on_the_cpu_every_rung_runs_whatever_the_card(card):
    card(T4)
    for number in range(10):
        check_card(number, "fast")
    for number in range(6):
        check_prefill_card(number, "checked")


def test_what_only_hopper_has_a_newer_card_lacks_too(card):
    card(B200, "B200")
    with pytest.raises(
        ValueError,
        match=r"^rung 5 of the prefill ladder needs a GPU of compute capability 9\.0, and "
        r"B200 has 10\.0: products by groups of four warps \(wgmma\) are Hopper's own\. "
        r"Rungs 0, 1, 2, 3 and 4 run on it\.$",
    ):
        prefill_library(5, Shape(torch.float16, 128, 4, 16))


@pytest.mark.parametrize(
    ("capability", "target", "block_size", "best"),
    [
        (H100, "gpu", 16, 5),
        (H100, "gpu", 24, 4),
        (H100, "fast", 16, 4),
        (A100, "gpu", 16, 4),
        (B200, "gpu", 16, 4),
    ],
)
def test_the_best_rung_for_a_card_and_a_shape(card, capability, target, block_size, best):
    card(capability)
    assert best_prefill_rung(Shape(torch.float16, 128, 4, block_size), target) == best


def test_there_is_no_best_rung_where_none_is_made_for_it(card):
    card(T4)
    with pytest.raises(ValueError, match=r"^rung 4 of the prefill ladder needs "):
        best_prefill_rung(Shape(torch.float16, 128, 4, 16), "gpu")
    with pytest.raises(ValueError, match="^head_size must be 64 or 128 or 256, not 96"):
        best_prefill_rung(Shape(torch.float16, 96, 4, 16), "gpu")


@pytest.mark.filterwarnings("error")
def test_without_a_gpu_or_with_a_shape_of_others_there_is_nothing_to_say(card):
    card(T4)
    fits, other = (Shape(torch.float16, size, 2, 16) for size in (128, 96))
    assert choose_path(fits, torch.device("cpu")) == "batched"
    assert choose_path(other, torch.device("cuda")) == "batched"
    card(A100)
    assert choose_path(fits, torch.device("cuda")) == "fast"


def test_the_ladders_tables_say_what_a_card_cannot_run(card):
    card(T4, "Tesla T4")
    lacks = {entry.name: entry.missing() for entry in backends.BACKENDS}
    assert lacks["rung 3"] == "" and "8.0 or more, and Tesla T4" in lacks["rung 4"]
    lacks = {entry.name: entry.missing() for entry in prefill.BACKENDS}
    assert lacks["rung 1"] == "" and "8.0 or more, and Tesla T4" in lacks["rung 2"]


def test_the_table_of_this_machine(card, capsys):
    card(T4, "Tesla T4")
    which_rungs.main()
    shown = capsys.readouterr().out
    assert shown.startswith("Tesla T4, compute capability 7.5\n")
    lines = [line for line in shown.splitlines() if line.startswith("rung")]
    assert len(lines) == len(ALL_RUNGS)
    assert ["runs here" in line for line in lines] == [
        rung.needs is EVERY for rung in ALL_RUNGS
    ]


slow, nightly = pytest.mark.slow, pytest.mark.slow(nightly=True)
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
# The assembler looks at each instruction. Its optimiser would only take time.
NVCC = ["nvcc", "-c", "-std=c++17", "-Xptxas", "-O0", "-o", "/dev/null"]
DTYPES = ("__half", "__nv_bfloat16", "float")
FOR_AMPERE = {rung.file: rung.needs for rung in ALL_RUNGS if rung.needs in (PRODUCTS, COPIES)}
FOR_AMPERE |= {"engine/few_rows.cu": COPIES}
# All texts but parts of others, and the one that needs PyTorch's headers.
OTHER_KERNELS = sorted(
    {path.relative_to(KERNELS).as_posix() for path in KERNELS.rglob("*.cu")}
    - {rung.file for rung in ALL_RUNGS}
    - FOR_AMPERE.keys()
    - {"tensor_form.cu"}
)


def compiled(folder: Path, file: str, code: int | str, number="__half", kv_number=None) -> str:
    """What nvcc says about a kernel for caches of some numbers; "" if it compiles it.

    code: the compute capability without its point.
    """
    shape = folder / "ladder" / "shape.cuh"
    if not shape.exists():
        shutil.copytree(KERNELS, folder, dirs_exist_ok=True)
    text = (KERNELS / "ladder" / "shape.cuh").read_text()
    for name, value in (("Number", number), ("KvNumber", kv_number or number)):
        text = re.sub(rf"(using {name} =) \w+;", rf"\1 {value};", text)
    shape.write_text(text)
    target = f"-gencode=arch=compute_{code},code=sm_{code}"
    command = [*NVCC, target, str(folder / file)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert (built.returncode == 0) == ("error" not in built.stderr)
    return built.stderr if built.returncode else ""


@nightly
@pytest.mark.sampled(8)
@needs_nvcc
@pytest.mark.parametrize(
    "file, number",
    [(file, "__half") for file in OTHER_KERNELS]
    + [(rung.file, number) for rung in ALL_RUNGS if rung.needs is EVERY for number in DTYPES],
)
def test_a_kernel_for_every_card_compiles_for_a_t4(tmp_path, file, number):
    assert compiled(tmp_path, file, 75, number) == ""


@nightly
@pytest.mark.sampled(8)
@needs_nvcc
@pytest.mark.parametrize("number", DTYPES[:2])
@pytest.mark.parametrize("file", FOR_AMPERE)
def test_a_kernel_that_needs_ampere_compiles_for_it_and_for_nothing_older(
    tmp_path, file, number
):
    refusal = compiled(tmp_path, file, 75, number)
    assert "'.m16n8k16' requires .target sm_80" in refusal
    assert ("'cp.async' requires .target sm_80" in refusal) == (FOR_AMPERE[file] is COPIES)
    assert compiled(tmp_path, file, 80, number) == ""


@slow
@needs_nvcc
@pytest.mark.parametrize("file", ["engine/few_rows.cu", "engine/rotate.cu"])
def test_a_kernel_that_may_begin_early_compiles_for_cards_that_can_do_that(tmp_path, file):
    assert compiled(tmp_path, file, 90) == ""


@nightly
@needs_nvcc
def test_hoppers_own_rung_compiles_for_it_alone(tmp_path):
    assert PREFILL_RUNGS[5].architecture == "90a" and PREFILL_RUNGS[5].needs is GROUPS
    assert compiled(tmp_path, PREFILL_RUNGS[5].file, "90a") == ""
    for code in (90, 100):
        assert "wgmma" in compiled(tmp_path, PREFILL_RUNGS[5].file, code)


@slow
@needs_nvcc
@pytest.mark.parametrize("rung", [RUNGS[8], RUNGS[9]], ids=lambda r: r.file)
def test_a_cache_of_8_bits_compiles_for_ada_and_for_nothing_older(tmp_path, rung):
    assert RUNGS[8].needs is EIGHT_BITS
    assert "sm_89" in compiled(tmp_path, rung.file, 86, "__half", "Fp8")
    assert compiled(tmp_path, rung.file, 89, "__half", "Fp8") == ""
