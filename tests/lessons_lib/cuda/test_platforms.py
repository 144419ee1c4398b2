"""The CPU stand-in on processors and systems that are not this one: what is built for them,
and what runs.

Linux on arm64: Debian's cross compiler and Clang build the paged kernel in both modes,
and Clang each kernel of lessons 06 to 10. qemu runs them. macOS on arm64: the Clang in PyPI's
`ziglang` compiles both modes; nothing links or runs it. Clang on this system judges kernels
and answers as GCC does. Each test needs its tools: `make test-all TOOL=platforms`.
"""

import importlib.util
import os
import pickle
import re
import shutil
import subprocess
import sys

import pytest
import torch

import replayed_calls
from lessons_lib.cuda.builds import CUDA_ON_CPU
from lessons_lib.cuda.inline import read_kernel
from lessons_lib.cuda_on_cpu.rewrite import rewrite
from lessons_lib.paths import ROOT
from paged_attention.attention.paged_kernel import KERNEL_FILES

pytestmark = pytest.mark.tool("platforms")
HERE = ROOT / "tests/support/machine/platforms"
COMMON = (
    "-std=c++17",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-Wall",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    "-Wno-sign-compare",
    "-Werror",
)
KERNEL = {
    "fast": ("-O3",),
    "checked": ("-O1", "-g", "-fsanitize=thread", "-fsanitize-coverage=trace-pc"),
}


def kernel_sources(folder):
    """The paged kernel and the kernel with a race, rewritten for C++."""
    paged, shift = folder / "paged.cpp", folder / "shift.cpp"
    paged.write_text("".join(rewrite(read_kernel(name)) for name in KERNEL_FILES))
    shift.write_text(rewrite((HERE / "shift.cu").read_text()))
    return paged, shift


def compile_all(compiler, folder, mode):
    """The objects of the runtime, the kernels and the driver."""
    checked = f"-DCHECKED={int(mode == 'checked')}"
    runtime_flags = [flag for flag in COMMON if flag != "-fno-exceptions"]
    objects = []
    for source in (CUDA_ON_CPU / "runtime.cpp", HERE / "driver.cpp", *kernel_sources(folder)):
        kernel = source.parent == folder
        flags = (
            [
                *COMMON,
                *KERNEL[mode],
                "-include",
                "cuda_runtime.h",
                f"-I{CUDA_ON_CPU / 'include'}",
            ]
            if kernel
            else [*runtime_flags, "-O2", checked, "-DCUDA_ON_CPU_SLOT_BITS=28"]
        )
        objects.append(folder / f"{source.stem}.{mode}.o")
        run(*compiler, *flags, "-fPIC", "-c", source, "-o", objects[-1])
    return objects


def run(*command, **options) -> str:
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, **options
    )
    assert result.returncode == 0, f"{result.args}\n{result.stdout}{result.stderr}"
    return result.stdout


ARM64 = ["clang++", "--target=aarch64-linux-gnu"]
has_arm64 = pytest.mark.skipif(
    not all(map(shutil.which, ("aarch64-linux-gnu-g++", "qemu-aarch64", "clang++"))),
    reason="needs Debian's g++-aarch64-linux-gnu, qemu-user and clang",
)


@pytest.fixture(scope="session")
def calls(tmp_path_factory):
    """A call of each kernel of lessons 06 to 10, as tests make them here."""
    folder = tmp_path_factory.mktemp("calls")
    environment = {"CALLS": str(folder), "PYTHONPATH": str(ROOT / "tests/support/attention")}
    options = ["-q", "-n", "0", "--every", "1", "-p", "recorded_calls", "-m", "not slow"]
    run(
        *(sys.executable, "-m", "pytest", *options, *CALLERS, "-k", CHOSEN),
        env=os.environ | environment,
        cwd=ROOT,
    )
    return [pickle.loads(path.read_bytes()) for path in sorted(folder.iterdir())]


CALLERS = [
    "tests/paged_attention/attention/test_paged_kernel.py",
    "tests/paged_attention/ladder/test_ladder.py",
    "tests/paged_attention/prefill/test_prefill_kernels.py",
    "tests/paged_attention/engine/fast/test_step_kernels.py",
    "tests/paged_attention/engine/fast/test_advance.py",
]
CHOSEN = (
    "other_scales and 300 or test_paged_kernel and no_bit"
    " or add_norm or gate or rotate or feeds_its_last_token"
)


@has_arm64
def test_clangs_arm64_build_of_each_lessons_kernels_gives_the_same_numbers(calls, tmp_path):
    """Each program is run by qemu, on the tensors that the kernel has had here."""
    runtime = tmp_path / "runtime.o"
    flags = [flag for flag in COMMON if flag != "-fno-exceptions"]
    include = ["-include", "cuda_runtime.h", f"-I{CUDA_ON_CPU / 'include'}"]
    source = CUDA_ON_CPU / "runtime.cpp"
    run(*ARM64, *flags, "-O2", "-DCHECKED=0", "-fPIC", "-c", source, "-o", runtime)
    ran = {name for call in calls for name in ([*call.texts][-1], call.function)}
    kernels = ["paged_attention", "add_norm", "gate", "rotate", "advance"]
    kernels += [f"ladder/{n}" for n in range(10)] + [f"prefill/{n}" for n in range(6)]
    assert [name for name in kernels if not any(map(re.compile(name).match, ran))] == []
    quiet = [flag for flag in COMMON if flag not in ("-Wall", "-Werror")]
    for call in calls:
        texts = {
            "kernel": replayed_calls.kernel_of(call),
            "main": replayed_calls.program_of(call),
        }
        for name, text in texts.items():
            (tmp_path / f"{name}.cpp").write_text(text)
            extra = include if name == "kernel" else []
            words = [*KERNEL["fast"], *extra, "-c", tmp_path / f"{name}.cpp"]
            run(*ARM64, *quiet, *words, "-o", tmp_path / f"{name}.o")
        program, given, result = (tmp_path / name for name in ("program", "given", "result"))
        objects = [runtime, tmp_path / "kernel.o", tmp_path / "main.o"]
        run(*ARM64, *objects, "-pthread", "-ldl", "-o", program)
        given.write_bytes(replayed_calls.tensors_of(call))
        run("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", program, given, result)
        for address, seen in replayed_calls.written(call, result.read_bytes()).items():
            expected = call.after[address]
            assert_alike(seen, expected, f"{call.function} in {[*call.texts][-1]}")


def assert_alike(seen, expected, name: str):
    """The same whole numbers, and numbers as near as another order of sums brings them."""
    if not expected.content:
        return
    ours, theirs = (
        torch.frombuffer(bytearray(memory.content), dtype=expected.dtype)
        for memory in (seen, expected)
    )
    if expected.dtype.is_floating_point:
        near = {4: 1e-4, 2: 2e-2, 1: 0.15}[expected.dtype.itemsize]
        ours, theirs = ours.float(), theirs.float()
        torch.testing.assert_close(
            ours, theirs, rtol=near, atol=near, equal_nan=True, msg=name
        )
    else:
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("mode", ["fast", "checked"])
@pytest.mark.parametrize("compiler", [["aarch64-linux-gnu-g++"], ARM64], ids=["gcc", "clang"])
@has_arm64
def test_linux_on_arm64_runs_the_paged_kernel_and_names_a_race(tmp_path, mode, compiler):
    objects = compile_all(compiler, tmp_path, mode)
    run("aarch64-linux-gnu-g++", *objects, "-pthread", "-ldl", "-o", tmp_path / "driver")
    printed = run("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", tmp_path / "driver")
    shift = "kind race" if mode == "checked" else "no report"
    assert printed == "paged_attention: right\n" * 3 + f"shift: {shift}\n"


@pytest.mark.parametrize("mode", ["fast", "checked"])
def test_macos_on_arm64_compiles(tmp_path, mode):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs PyPI's ziglang")
    objects = compile_all(
        [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-macos"], tmp_path, mode
    )
    # 64-bit Mach-O files
    assert {path.read_bytes()[:4] for path in objects} == {b"\xcf\xfa\xed\xfe"}


def run_tests(tests: list[str], compiler: str, folder, chosen: str = ""):
    builds = {"CXX": compiler, "LESSONS_BUILD_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    options = ["-q", "-n", "auto", "-m", "not slow and not alone", "-k", chosen]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    run(*command, env=os.environ | builds, cwd=ROOT)


ON_CPU = "tests/lessons_lib/cuda_on_cpu"
# whole-row-in-a-lane writes past a lane's own array. The compiler decides what happens.
ANSWERS = (
    "(our_answer or known_mistake_is) and ([6. or [7.2 or [7.3 or [7.4 or [7.5) "
    "and not whole-row-in-a-lane"
)


@pytest.mark.parametrize(
    "tests, chosen",
    [(f"{ON_CPU}/test_cuda_bank.py", ""), ("tests/lessons_content/test_banks.py", ANSWERS)],
    ids=["kernels", "answers"],
)
def test_clang_finds_what_gcc_finds(tmp_path, tests, chosen):
    if not shutil.which("clang++"):
        pytest.skip("needs clang")
    run_tests([tests], "clang++", tmp_path, chosen)


def test_ubuntus_gcc_finds_what_debians_finds(tmp_path):
    """What Ubuntu's GCC does unless it is told otherwise."""
    compiler = tmp_path / "c++"
    compiler.write_text(
        "#!/bin/sh\n"
        "exec g++ -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection "
        '-fcf-protection "$@"\n'
    )
    compiler.chmod(0o755)
    tests = [f"{ON_CPU}/test_cuda_{name}.py" for name in ("blocks", "grid", "bank")]
    tests.append("tests/lessons_lib/cuda/test_cuda_tensors.py")
    run_tests(tests, str(compiler), tmp_path / "builds")
