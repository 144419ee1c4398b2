"""The stress test of lesson 01 under ThreadSanitizer: silent with the mutex, not without
it.
"""

import os
import shutil
import subprocess

import pytest

from lessons_lib.cuda.inline import read_kernel

MAIN = "int main() { return stress(4, 200); }\n"
LOCK = "std::lock_guard<std::mutex> lock(mutex_);"


@pytest.fixture(scope="module")
def compiler():
    found = shutil.which(os.environ.get("CXX", "g++"))
    if not found and "CI" not in os.environ:
        pytest.skip("no g++ here")
    return found


def run_with_thread_sanitizer(compiler, folder, manager: str) -> subprocess.CompletedProcess:
    source, program = folder / "stress.cpp", folder / "stress"
    parts = [
        read_kernel("block_errors.h"),
        read_kernel("slow_free_list.h"),
        manager,
        read_kernel("block_manager_stress.cpp"),
    ]
    source.write_text("\n".join([*parts, MAIN]))
    built = subprocess.run(
        [
            compiler,
            "-std=c++17",
            "-O1",
            "-g",
            "-fsanitize=thread",
            "-pthread",
            source,
            "-o",
            program,
        ],
        capture_output=True,
        text=True,
    )
    if "cannot find" in built.stderr and "CI" not in os.environ:
        pytest.skip("the compiler comes without ThreadSanitizer's library (Fedora: libtsan)")
    assert built.returncode == 0, built.stderr
    # Without address randomisation, which older libraries cannot live with.
    command = ["setarch", "-R", str(program)] if shutil.which("setarch") else [str(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_the_manager_is_silent_under_thread_sanitizer(compiler, tmp_path):
    run = run_with_thread_sanitizer(compiler, tmp_path, read_kernel("block_manager.h"))
    assert run.returncode == 0 and "ThreadSanitizer" not in run.stderr, run.stderr


def test_without_the_mutex_it_is_a_data_race(compiler, tmp_path):
    manager = read_kernel("block_manager.h")
    assert manager.count(LOCK) == 5
    run = run_with_thread_sanitizer(compiler, tmp_path, manager.replace(LOCK, ""))
    assert run.returncode != 0 and "WARNING: ThreadSanitizer: data race" in run.stderr
