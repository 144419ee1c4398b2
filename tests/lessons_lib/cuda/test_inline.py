"""C++ from a notebook: built once, errors at the learner's line, and nothing that a failed or
killed build can spoil.
"""

import functools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler_script import PASS_ON, CompilerScript
from lessons_lib import CompileError, build_cpp, build_cuda, build_library, run_isolated
from lessons_lib.cuda.compiler import NATIVE
from lessons_lib.cuda.compiler_errors import CannotBuild
from lessons_lib.cuda.inline import preprocess, read_kernel
from lessons_lib.paths import KERNELS, ROOT
from lessons_lib.processes.cpu_time import observe_session

ANSWER = 'extern "C" int answer() { return 42; }'
build_fast = functools.partial(build_cuda, target="fast")


@pytest.fixture
def empty_build_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LESSONS_BUILD_DIR", str(tmp_path))
    return tmp_path


def finished_builds(folder: Path) -> list[Path]:
    return [path.parent for path in folder.glob("*/finished")]


@pytest.fixture
def compiler(empty_build_folder, monkeypatch):
    return CompilerScript(monkeypatch, empty_build_folder)


def test_a_library_is_built_once(compiler):
    assert build_library(ANSWER).answer() == 42
    compiled, linked = compiler.calls()
    assert "-c" in compiled and "-shared" in linked
    assert build_library(ANSWER).answer() == 42
    assert compiler.calls() == [compiled, linked]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "is_elsewhere",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap")
        ),
    ],
)
def test_a_new_process_builds_it_again_only_on_another_processor(
    empty_build_folder, is_elsewhere
):
    """As where several machines share a folder. The other one's features are a file here.

    Nor does PyTorch warn there of a toolkit without a GPU.
    """
    build_library(ANSWER, flags=(NATIVE,))
    features = empty_build_folder / "cpuinfo"
    features.write_text("flags : those of another\n")
    elsewhere = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", str(features), "/proc/cpuinfo"]
    program = "from lessons_lib import build_library; "
    program += f"build_library({ANSWER!r}, flags=({NATIVE!r},))\n"
    program += "from torch.utils import cpp_extension\n"
    program += "cpp_extension.logger.warning('No CUDA runtime is found')"
    words = [*(elsewhere if is_elsewhere else []), sys.executable, "-c", program]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert len(finished_builds(empty_build_folder)) == 1 + is_elsewhere


def test_every_change_of_text_or_flags_is_another_build(empty_build_folder):
    build_library(ANSWER)
    build_library(ANSWER, flags=("-O0",))
    # A comment can change a program: this one swallows the line below it.
    assert (
        build_library(f'extern "C" int other() {{ return 1; }}\n// \\\n{ANSWER}').other() == 1
    )
    assert len(finished_builds(empty_build_folder)) == 3


def test_a_failed_build_leaves_nothing_and_can_be_mended(empty_build_folder):
    broken = ANSWER.replace("42", "fourty_two")
    for _ in range(2):
        with pytest.raises(
            CompileError, match="your code, line 1: .*'fourty_two' was not declared"
        ):
            build_library(broken)
    assert finished_builds(empty_build_folder) == []
    assert build_library(ANSWER).answer() == 42


def cut(library: Path):
    content = library.read_bytes()
    library.unlink()  # what this process has loaded stays
    library.write_bytes(content[:5_000])


RUBBISH = {
    "a file": lambda build, library: (shutil.rmtree(build), build.touch()),
    "a link to nowhere": lambda build, library: (shutil.rmtree(build), build.symlink_to("no")),
    "half a library": lambda build, library: cut(library),
    "a folder for the library": lambda build, library: (library.unlink(), library.mkdir()),
    "a folder for the sign that it is finished": lambda build, library: (
        (build / "finished").unlink(),
        (build / "finished").mkdir(),
    ),
}


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_what_is_in_the_place_of_a_build_is_no_obstacle(empty_build_folder, compiler, rubbish):
    assert build_library(ANSWER).answer() == 42
    (build,) = finished_builds(empty_build_folder)
    RUBBISH[rubbish](build, build / f"{build.name}.so")
    assert build_library(ANSWER).answer() == 42
    assert finished_builds(empty_build_folder) == [build] and len(compiler.calls()) == 4


def test_what_killed_builds_have_left_is_deleted_after_an_hour(empty_build_folder):
    assert build_library(ANSWER).answer() == 42
    (build,) = finished_builds(empty_build_folder)
    (build / "finished").unlink()
    old, new = (build.with_name(f"{build.name}-{name}") for name in ("old", "new"))
    for left in (old, new):
        left.mkdir()
        (left / "main.cpp").touch()
    os.utime(old, (0, 0))
    assert build_library(ANSWER).answer() == 42
    assert not old.exists() and new.exists()


@pytest.mark.slow
def test_two_processes_that_build_the_same_at_once_build_it_once(
    empty_build_folder, monkeypatch
):
    """The second one asks while the first one is in the middle of its build, and waits for
    it.
    """
    go_on = empty_build_folder / "go_on"
    os.mkfifo(go_on)
    waits = f'test -p "{go_on}" && cat "{go_on}"\n{PASS_ON}'
    compiler = CompilerScript(monkeypatch, empty_build_folder, waits)
    program = (
        "import sys, torch; from lessons_lib import build_library; print(flush=True); "
        "print(build_library(sys.argv[1]).answer())"
    )
    builders = []
    for _ in range(2):
        builder = subprocess.Popen(
            [sys.executable, "-c", program, ANSWER],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        builders.append(builder)
        assert builder.stdout.readline() == "\n"
        looks = 0
        while looks < 30:  # until it sleeps: in the compiler, or at the lock
            _, threads = observe_session(builder.pid) or (0.0, {})
            is_awake = any(thread.is_ready for thread in threads.values())
            looks = 0 if is_awake or not compiler.calls() else looks + 1
            time.sleep(0.01)
    with open(go_on, "w"):
        go_on.unlink()
    assert [builder.communicate()[0] for builder in builders] == ["42\n"] * 2
    assert len(compiler.calls()) == 2


def test_an_error_inside_a_system_header_is_placed_at_the_learners_call():
    source = (
        "#include <algorithm>\n"
        "#include <vector>\n"
        "struct A {};\n"
        "void f(std::vector<A>& v) {\n"
        "  std::sort(v.begin(), v.end());\n}"
    )
    with pytest.raises(CompileError) as caught:
        build_library(source)
    assert caught.value.line == 5 and "no match for 'operator<'" in caught.value.reason


def test_a_function_that_is_declared_and_never_defined_is_named():
    with pytest.raises(CompileError, match=r"`missing\(int\)` is declared but never defined"):
        build_library('int missing(int);\nextern "C" int answer() { return missing(1); }')


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: build_cpp(), "pass at least one C++ source text"),
        (lambda: build_cpp(3), "source 1 is int: 3"),
        (lambda: build_cuda(3), "source 1 is int: 3"),
        (lambda: build_cpp("int x;", None), "source 2 is NoneType: None"),
    ],
)
def test_something_else_than_text_is_refused(call, words):
    with pytest.raises(TypeError) as caught:
        call()
    assert words in str(caught.value)


@pytest.mark.parametrize("names", [("a", "a"), ("a",), ('a"b', "c")])
def test_sources_have_names_of_their_own(names):
    with pytest.raises(ValueError, match="Each of the 2 sources needs a name of its own"):
        build_library("int x;", ANSWER, names=names)


@pytest.mark.parametrize("before", [None, "de_DE.UTF-8"])
def test_compilers_speak_english_and_the_environment_stays_as_it_was(
    empty_build_folder, monkeypatch, before
):
    """Whatever the learner's language is: the words of errors are looked for."""
    monkeypatch.delenv("LC_ALL", raising=False)
    if before:
        monkeypatch.setenv("LC_ALL", before)
    says = 'echo "your code:1:1: error: no, in $LC_ALL"; exit 1'
    CompilerScript(monkeypatch, empty_build_folder, says)
    environment = dict(os.environ)
    with pytest.raises(CompileError, match="your code, line 1: no, in C\n"):
        build_library(ANSWER)
    assert dict(os.environ) == environment


@pytest.mark.parametrize("words", ["c++ -DVALUE=42", "'c++' '-DVALUE=42'", ""])
def test_cxx_may_have_arguments_or_be_empty(empty_build_folder, monkeypatch, words):
    monkeypatch.setenv("CXX", words)
    text = ANSWER.replace("42", "VALUE" if words else "42")
    assert build_library(text).answer() == 42


def test_a_module_without_a_binding_says_what_is_missing():
    with pytest.raises(CompileError, match="PYBIND11_MODULE"):
        build_cpp("int x;")


@pytest.mark.parametrize("build", [build_library, build_fast, preprocess])
@pytest.mark.parametrize("words", ["no-such-compiler", "/bin/false"])
def test_where_no_compiler_works_it_says_what_to_do(
    empty_build_folder, monkeypatch, build, words
):
    monkeypatch.setenv("CXX", words)
    with pytest.raises(CannotBuild, match=f"`{words}` .*: unset CXX, or .*apt-get install g"):
        build(ANSWER)


def test_the_preprocessor_collects_any_text_and_names_its_errors():
    collected = preprocess("#define TWO 2\nint a = TWO;  // …\n", "-DONE=1")
    assert "int a = 2;" in collected
    with pytest.raises(CompileError, match="line 2: no-such"):
        preprocess("// …\n#include <no-such>\n")


@pytest.mark.slow
def test_a_class_can_be_built_again_after_a_change():
    text, binding = read_kernel("free_list.h"), (KERNELS / "free_list_binding.cpp").read_text()
    first = build_cpp(text, binding).FreeList
    second = build_cpp(text.replace("pop() {", "pop() { ;"), binding).FreeList
    assert first is not second and (first(3).pop(), second(3).pop()) == (0, 0)


def test_cpp_may_print_numbers():
    source = (
        '#include <iostream>\nextern "C" int say() { std::cout << 5 << std::endl; return 7; }'
    )
    outcome = run_isolated(lambda: build_library(source).say(), time_limit=60)
    assert (outcome.ending, outcome.value) == ("returned", 7) and "5\n" in outcome.printed
