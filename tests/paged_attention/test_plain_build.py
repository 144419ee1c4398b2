"""PyTorch's `load_inline` with a folder that keeps what it builds: quick the second time,
errors in a sentence, and nothing that a failed or killed build can spoil.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import load_inline

from compiler_script import CompilerScript
from lessons_lib import CompileError
from lessons_lib.cuda.compiler_errors import CannotBuild
from lessons_lib.paths import ROOT
from paged_attention.attention.plain_build import kept_build

ANSWER = 'extern "C" int answer() { return 42; }'
PROGRAM = """
import sys
from torch.utils.cpp_extension import load_inline
from paged_attention.attention.plain_build import kept_build

texts = [sys.argv[1]]
with kept_build(texts) as folder:
    load_inline("answer", texts, no_implicit_headers=True, is_python_module=False,
                build_directory=folder)
"""


def build(name: str, text: str) -> None:
    with kept_build([text]) as folder:
        load_inline(
            name,
            [text],
            no_implicit_headers=True,
            is_python_module=False,  # so that no text needs pybind11's header
            build_directory=folder,
        )


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("LESSONS_BUILD_DIR", str(tmp_path))
    return CompilerScript(monkeypatch, tmp_path)


@pytest.mark.slow
def test_a_text_is_compiled_once_for_all_processes(compiler, tmp_path, monkeypatch):
    """In an environment with a space in its folder's name."""
    packages = tmp_path / "a folder"
    packages.mkdir()
    (packages / "torch").symlink_to(Path(torch.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", PROGRAM, ANSWER], cwd=ROOT, check=True)
    assert len(compiler.compiled()) == 1


def test_the_lock_of_a_killed_build_is_no_obstacle(compiler, tmp_path):
    with kept_build([ANSWER]) as folder:
        pass
    (tmp_path / folder / "lock").touch()
    build("after_a_kill", ANSWER)
    assert len(compiler.compiled()) == 1


def test_a_text_that_is_refused_is_told_in_a_sentence_each_time(compiler):
    broken = ANSWER.replace("42", "fourty_two")
    for _ in range(2):
        with pytest.raises(CompileError, match=r"main.cpp, line 1: .*fourty_two") as caught:
            build("refused", broken)
        assert len(str(caught.value).splitlines()) <= 3
    build("refused", ANSWER)


def test_an_interrupted_build_is_done_again(compiler):
    with pytest.raises(KeyboardInterrupt), kept_build([ANSWER]) as folder:
        raise KeyboardInterrupt
    with kept_build([ANSWER]) as another:
        assert another != folder


def test_without_a_compiler_the_remedy_is_told(compiler, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CannotBuild, match="`no-such-compiler`.* install one with"):
        build("never", ANSWER)
