"""C++ from a notebook: built once, errors at the learner's line, and nothing that a failed or
killed build can spoil.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from lessons_lib import (
    CompileError,
    build_cpp,
    build_library,
    compiler_errors,
    inline,
    run_isolated,
)
from lessons_lib.compiler_errors import explain
from lessons_lib.paths import KERNELS, ROOT
from lessons_processes.own_time import observe_session

ANSWER = 'extern "C" int answer() { return 42; }'


@pytest.fixture
def empty_build_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LESSONS_BUILD_DIR", str(tmp_path))
    monkeypatch.setattr(inline, "_loaded", {})
    return tmp_path


def finished_builds(folder: Path) -> list[Path]:
    return [path.parent for path in folder.glob("*/finished")]


def test_a_library_is_built_once(empty_build_folder, monkeypatch):
    assert build_library(ANSWER).answer() == 42
    (build,) = finished_builds(empty_build_folder)
    stamp = (build / "finished").stat().st_mtime_ns
    inline._loaded.clear()
    monkeypatch.setattr(inline, "_run_load_inline", None)
    assert build_library(ANSWER).answer() == 42
    assert (build / "finished").stat().st_mtime_ns == stamp


def test_every_change_of_text_or_flags_is_another_build(empty_build_folder):
    build_library(ANSWER)
    build_library(ANSWER, flags=("-O0",))
    # A comment can change a program: this one swallows the line below it.
    assert (
        build_library(f'extern "C" int other() {{ return 1; }}\n// \\\n{ANSWER}').other() == 1
    )
    assert len(finished_builds(empty_build_folder)) == 3


def test_pytorch_does_not_warn_of_a_toolkit_without_a_gpu():
    program = (
        "from lessons_lib import build_library; from torch.utils import cpp_extension\n"
        "cpp_extension.logger.warning('No CUDA runtime is found')"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True)
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.alone
def test_an_unchanged_rebuild_in_a_new_process_takes_under_a_third_of_a_second(
    empty_build_folder,
):
    program = (
        "import sys, time, torch; from lessons_lib import build_library; started = "
        "time.monotonic(); build_library(sys.argv[1]); print(time.monotonic() - started)"
    )
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", program, ANSWER],
                cwd=ROOT,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(3)
    ]
    assert min(times[1:]) < 0.3


def test_a_failed_build_leaves_nothing_and_can_be_mended(empty_build_folder):
    broken = ANSWER.replace("42", "fourty_two")
    for _ in range(2):
        with pytest.raises(
            CompileError, match="your code, line 1: .*'fourty_two' was not declared"
        ):
            build_library(broken)
    assert finished_builds(empty_build_folder) == []
    assert build_library(ANSWER).answer() == 42


def test_a_build_that_was_killed_with_its_lock_is_started_anew(empty_build_folder):
    build_library(ANSWER)
    (build,) = finished_builds(empty_build_folder)
    (build / "finished").unlink()
    (build / "lock").touch()  # PyTorch waits for ever for this file to go away
    (build / f"{build.name}.so").unlink()  # the loaded copy stays valid in this process
    (build / f"{build.name}.so").write_bytes(b"half a library")
    # In a separate process, which can be ended if it waits.
    assert run_isolated(lambda: build_library(ANSWER).answer(), time_limit=60).value == 42


def test_a_spoilt_library_is_reported_and_built_again(empty_build_folder):
    build_library(ANSWER)
    (build,) = finished_builds(empty_build_folder)
    library = build / f"{build.name}.so"
    # the loaded copy stays valid in this process; a new one would load this file
    library.unlink()
    library.write_bytes(b"rubbish")
    program = (
        "import sys; from lessons_lib import build_library; "
        "print(build_library(sys.argv[1]).answer())"
    )
    first = subprocess.run(
        [sys.executable, "-c", program, ANSWER], cwd=ROOT, capture_output=True, text=True
    )
    assert first.returncode != 0 and "cannot be loaded" in first.stderr
    second = subprocess.run(
        [sys.executable, "-c", program, ANSWER], cwd=ROOT, capture_output=True, text=True
    )
    assert second.stdout == "42\n"


def test_two_processes_that_build_the_same_at_once_build_it_once(
    empty_build_folder, monkeypatch
):
    """The second one asks while the first one is in the middle of its build, and waits for
    it.
    """
    build, others = inline._run_load_inline, []
    program = (
        "import fcntl, sys; from lessons_lib import build_library, inline; "
        "inline._run_load_inline = None; flock = fcntl.flock; "
        "fcntl.flock = lambda *lock: (print('at the lock', flush=True), flock(*lock)); "
        "print(build_library(sys.argv[1]).answer())"
    )

    def build_while_another_asks(*arguments):
        other = subprocess.Popen(
            [sys.executable, "-c", program, ANSWER],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        others.append(other)
        assert other.stdout.readline() == "at the lock\n"
        looks = 0
        # until it ends, which it must not, or sleeps
        while other.poll() is None and looks < 20:
            _, is_awake = observe_session(other.pid) or (0.0, False)
            looks = 0 if is_awake else looks + 1
            time.sleep(0.01)
        assert other.poll() is None
        build(*arguments)

    monkeypatch.setattr(inline, "_run_load_inline", build_while_another_asks)
    assert build_library(ANSWER).answer() == 42
    (other,) = others
    assert (other.communicate()[0], other.returncode) == ("42\n", 0)


def test_an_error_names_the_source_and_shows_the_line():
    with pytest.raises(CompileError) as caught:
        build_library(
            "int fine();", "\n\nint broken( { return 1; }\n", names=("one.h", "two.h")
        )
    assert (caught.value.source, caught.value.line) == ("two.h", 3)
    assert "two.h, line 3: " in str(caught.value)
    assert "\n    int broken( { return 1; }\n" in str(caught.value)
    assert caught.value._render_traceback_() == [f"CompileError: {caught.value}"]


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


def test_other_compilers_errors_are_understood():
    sources = {"your code": "a\nb\nc"}
    clang = "your code:2:1: error: unknown type name 'b'\nb\n^\n1 error generated."
    nvcc = 'your code(3): error: identifier "c" is undefined\n'
    assert explain(clang, sources).line == 2
    assert (
        str(explain(nvcc, sources)) == 'your code, line 3: identifier "c" is undefined\n    c'
    )
    assert "collect2: error" in str(
        explain("collect2: error: ld returned 1 exit status", sources)
    )


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: build_cpp(), "pass at least one C++ source text"),
        (lambda: build_cpp(3), "source 1 is int: 3"),
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


def test_building_leaves_the_environment_as_it_was(empty_build_folder, monkeypatch):
    monkeypatch.delenv("LC_ALL", raising=False)
    before = dict(os.environ)
    build_library(ANSWER)
    assert dict(os.environ) == before


@pytest.mark.parametrize("before", [None, "de_DE.UTF-8"])
def test_compilers_speak_english_while_they_build(empty_build_folder, monkeypatch, before):
    """Whatever the learner's language is: the words of errors are looked for."""
    monkeypatch.delenv("LC_ALL", raising=False)
    if before:
        monkeypatch.setenv("LC_ALL", before)
    seen = []

    def fail(*arguments, **options):
        seen.append(os.environ["LC_ALL"])
        raise RuntimeError("your code:1:1: error: no")

    monkeypatch.setattr(cpp_extension, "load_inline", fail)
    with pytest.raises(CompileError, match="your code, line 1: no"):
        build_library(ANSWER)
    assert seen == ["C"] and os.environ.get("LC_ALL") == before


def test_a_compiler_with_arguments_is_refused_in_words(empty_build_folder, monkeypatch):
    monkeypatch.setenv("CXX", "g++ -DUNUSED=1")
    with pytest.raises(CompileError, match="CXX names one program, without arguments"):
        build_library(ANSWER)


def test_a_module_without_a_binding_says_what_is_missing():
    with pytest.raises(CompileError, match="PYBIND11_MODULE"):
        build_cpp("int x;")


def test_a_missing_compiler_says_what_to_install(empty_build_folder, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        CompileError, match="`no-such-compiler` is not installed.*apt-get install g"
    ):
        build_library(ANSWER)


@pytest.mark.slow
def test_a_class_can_be_built_again_after_a_change():
    binding = (KERNELS / "free_list_binding.cpp").read_text()
    first = build_cpp(inline.read_kernel("free_list.h"), binding).FreeList
    second = build_cpp(
        inline.read_kernel("free_list.h").replace("pop() {", "pop() { ;"), binding
    ).FreeList
    assert first is not second and (first(3).pop(), second(3).pop()) == (0, 0)


def test_cpp_may_print_numbers():
    source = (
        '#include <iostream>\nextern "C" int say() { std::cout << 5 << std::endl; return 7; }'
    )
    outcome = run_isolated(lambda: build_library(source).say(), time_limit=60)
    assert (outcome.ending, outcome.value) == ("returned", 7) and "5\n" in outcome.printed


@pytest.mark.parametrize("number, line", [(0, None), (1, "first"), (2, " second"), (3, None)])
def test_a_line_is_quoted_if_it_is_there(number, line):
    assert compiler_errors._line("first\n\tsecond", number) == line
