"""How texts become a library: the folder of a build, what PyTorch is asked for, and what is
said when it fails. Nothing is compiled: PyTorch's `load_inline` is a stand-in.
"""

import fcntl
import logging
import os
import platform
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.utils import cpp_extension

from lessons_lib import inline
from lessons_lib.compiler_errors import CompileError
from lessons_lib.inline import Recipe, build_cpp, build_library

ANSWER = 'extern "C" int answer() { return 42; }'
BINDING = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {}"


class Compiler:
    """In place of `load_inline`: writes a library, or raises `error`.

    asked: the arguments of each call. environment: what it saw.
    """

    def __init__(self):
        self.asked, self.environment, self.known, self.error = [], {}, [], None

    def __call__(self, module, **arguments):
        self.asked.append({"module": module} | arguments)
        self.environment = dict(os.environ)
        entries = cpp_extension.JIT_EXTENSION_VERSIONER.entries
        self.known.append(module in entries)
        entries[module] = "an earlier build"
        if self.error:
            raise self.error
        (Path(arguments["build_directory"]) / f"{module}.so").write_text("a library")


@pytest.fixture(autouse=True)
def builds(tmp_path, monkeypatch):
    """The folder of all builds. What is loaded is the path itself, by either loader."""
    folder = tmp_path / "builds"
    monkeypatch.setenv("LESSONS_BUILD_DIR", str(folder))
    monkeypatch.setattr(inline, "_loaded", {})
    library = SimpleNamespace(CDLL=lambda path: ("library", path))
    monkeypatch.setattr(inline, "ctypes", library)
    monkeypatch.setattr(inline, "_import", lambda library: ("module", library))
    return folder


@pytest.fixture
def compiler(monkeypatch):
    stand_in = Compiler()
    monkeypatch.setattr(cpp_extension, "load_inline", stand_in)
    monkeypatch.setattr(cpp_extension.JIT_EXTENSION_VERSIONER, "entries", {})
    return stand_in


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a script with this name and these lines on the PATH, before all others."""

    def write(name: str, lines: str):
        folder = tmp_path / "programs"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o700)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        return str(folder / name)

    return write


def names(folder: Path) -> set[str]:
    """What is in a folder of builds, except locks."""
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


def test_pytorch_gives_no_warnings_of_builds():
    assert logging.getLogger("torch.utils.cpp_extension").level == logging.ERROR


def test_a_recipe_is_for_quick_builds_of_cpp_unless_it_says_more():
    assert Recipe() == Recipe(("-std=c++17", "-Og"), False, (), (), "")


def test_pytorch_is_asked_for_a_library_without_its_headers(compiler, builds):
    what, library = build_library(ANSWER, "int b;", names=("a.h", "b.h"), link=("-la b",))
    (asked,) = compiler.asked
    module = asked["module"]
    assert (what, library) == ("library", builds / module / f"{module}.so")
    assert library.read_text() == "a library" and (library.parent / "finished").exists()
    assert asked == {
        "module": module,
        "cpp_sources": f'#line 1 "a.h"\n{ANSWER}\n#line 2 "a.h"\nextern "C" {{}}\n'
        '#line 1 "b.h"\nint b;\n#line 2 "b.h"\nextern "C" {}\n',
        "extra_cflags": ["-std=c++17", "-Og"],
        "extra_ldflags": ["'-la b'"],
        "extra_include_paths": [],
        "build_directory": str(library.parent),
        "no_implicit_headers": True,
        "is_python_module": False,
    }


def test_a_module_is_imported(compiler):
    what, library = build_cpp("int a;", BINDING, name="mine", flags=["-O3"])
    assert what == "module" and library.name.startswith("mine_")
    assert compiler.asked[0]["extra_cflags"] == ["-O3"]


@pytest.mark.parametrize("sources", [("int a;",), ("int a;", "// PYBIND 11")])
def test_a_module_needs_a_binding(sources, compiler):
    with pytest.raises(CompileError, match="No source has PYBIND11_MODULE"):
        build_cpp(*sources)
    assert compiler.asked == []


def test_cuda_is_compiled_with_its_flags_and_headers(compiler):
    recipe = Recipe(("-O3",), cuda=True, include=(Path("/a"), Path("/b")))
    inline._compile({"a.cu": "text"}, "mine", recipe)
    (asked,) = compiler.asked
    assert asked["cpp_sources"] == "" and asked["cuda_sources"].startswith('#line 1 "a.cu"\nt')
    assert asked["extra_cuda_cflags"] == ["-O3"] and "extra_cflags" not in asked
    assert asked["extra_include_paths"] == ["/a", "/b"]


def test_a_library_is_built_and_loaded_once(compiler, monkeypatch):
    first = build_library(ANSWER)
    assert build_library(ANSWER) is first
    monkeypatch.setattr(inline, "_loaded", {})
    assert build_library(ANSWER) == first and len(compiler.asked) == 1


def test_a_build_that_another_process_finishes_first_is_taken(compiler, builds, monkeypatch):
    lock = fcntl.flock

    def wait(file, kind):
        lock(file, kind)
        folder = Path(file.name).with_suffix("")
        folder.mkdir()
        (folder / "finished").touch()

    monkeypatch.setattr(fcntl, "flock", wait)
    assert build_library(ANSWER)[0] == "library" and compiler.asked == []


def test_only_one_builds_a_folder(builds):
    builds.mkdir()
    with inline._only_builder(builds / "mine"), open(builds / "mine.lock") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_a_killed_build_left_is_gone_before_the_next(compiler, builds):
    _, library = build_library(ANSWER)
    (library.parent / "finished").unlink()
    (library.parent / "lock").touch()
    inline._loaded.clear()
    build_library(ANSWER)
    assert names(library.parent) == {library.name, "finished"}
    assert compiler.known == [False, False]


def test_what_is_rewritten_is_compiled_and_errors_show_the_learners_text(compiler):
    compiler.error = RuntimeError("mine:1:1: error: no")
    with pytest.raises(CompileError) as caught:
        inline._compile({"mine": "a b"}, "x", Recipe(), {"mine": "a c"})
    assert '\na c\n#line 2 "mine"' in compiler.asked[0]["cpp_sources"]
    assert str(caught.value) == "mine, line 1: no\n    a b"
    with pytest.raises(CompileError) as caught:
        inline._compile({"mine": "a b"}, "x", Recipe())
    assert str(caught.value) == "mine, line 1: no\n    a b\n    ^"


def test_a_build_is_inspected_before_and_after(compiler, builds):
    seen = []
    library = inline._compile(
        {"mine": "text"},
        "x",
        Recipe(),
        None,
        lambda text, module: seen.append((text, module, len(compiler.asked))),
        lambda library: seen.append((library, library.exists(), len(compiler.asked))),
    )
    (asked,) = compiler.asked
    assert seen == [(asked["cpp_sources"], asked["module"], 0), (library, True, 1)]


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_build_that_is_refused_leaves_nothing(compiler, builds, place):
    refusal = CompileError("refused")

    def refuse(*_):
        raise refusal

    with pytest.raises(CompileError) as caught:
        inline._compile({"mine": "text"}, "x", Recipe(), **{place: refuse})
    assert caught.value is refusal and names(builds) == set()


def failure(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error, words",
    [
        (RuntimeError("your code:1:8: error: no"), "your code, line 1: no\n    extern"),
        (OSError("no room"), "The code compiled but cannot be loaded: no room"),
        (
            failure(ImportError("hides it"), OSError("too old")),
            "The code compiled but cannot be loaded: too old",
        ),
    ],
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_build_that_fails_is_explained_and_leaves_nothing(
    compiler, builds, monkeypatch, error, words, is_gone
):
    compiler.error = error
    if is_gone:
        monkeypatch.setattr(
            cpp_extension,
            "load_inline",
            lambda *names, build_directory, **more: (
                shutil.rmtree(build_directory),
                compiler(*names, **more),
            ),
        )
    with pytest.raises(CompileError) as caught:
        build_library(ANSWER)
    assert str(caught.value).startswith(words) and names(builds) == set()


def test_the_name_of_a_build_depends_on_all_that_it_is_made_with(monkeypatch):
    texts = ["a", "b"]
    monkeypatch.setenv("CXX", "one")
    names = [
        inline._fingerprint(texts, Recipe()),
        inline._fingerprint(["a b"], Recipe()),
        inline._fingerprint(texts, Recipe(also="more")),
    ]
    assert inline._fingerprint([*texts], Recipe()) == names[0] and len(names[0]) == 16
    monkeypatch.setenv("CXX", "other")
    names.append(inline._fingerprint(texts, Recipe()))
    monkeypatch.setattr(platform, "machine", lambda: "another")
    names.append(inline._fingerprint(texts, Recipe()))
    assert len(set(names)) == 5


def test_a_kernel_is_read_without_marks_and_local_includes(tmp_path, monkeypatch):
    monkeypatch.setattr(inline, "KERNELS", tmp_path)
    marks = '#pragma once\n#include "b.h"\n  // BEGIN SOLUTION\n\t// END SOLUTION\n'
    (tmp_path / "a.h").write_text(f"#include <c>\n{marks}// one\nint é;", encoding="utf-8")
    assert inline.read_kernel("a.h") == "#include <c>\n// one\nint é;"


@pytest.mark.usefixtures("plain_locale")
def test_a_kernel_is_utf8_whatever_the_locale(tmp_path, monkeypatch):
    monkeypatch.setattr(inline, "KERNELS", tmp_path)
    (tmp_path / "a.h").write_bytes("// é\n".encode())
    assert inline.read_kernel("a.h") == "// é\n"


@pytest.mark.parametrize(
    "sources, given, named",
    [
        (("a",), (), {"your code": "a"}),
        (("a", "b"), (), {"source 1": "a", "source 2": "b"}),
        (("a", "b", "b"), (), {"source 1": "a", "source 2": "b", "source 3": "b"}),
        (("a", "b"), ("x", "y"), {"x": "a", "y": "b"}),
    ],
)
def test_sources_have_names(sources, given, named):
    assert inline._check_sources(sources, given) == named


@pytest.mark.parametrize("given", [("a",), ("a", "a"), ("a", 'b"'), ("a", "b", "b")])
def test_names_that_do_not_tell_the_sources_apart_are_refused(given):
    with pytest.raises(ValueError):
        inline._check_sources(("x", "y"), given)


@pytest.mark.parametrize(
    "sources, words",
    [
        ((), "There is nothing to build"),
        ((3,), "C\\+\\+ is built from text; source 1 is int: 3$"),
        (("a", None), "source 2 is NoneType: None$"),
    ],
)
def test_only_texts_are_built(sources, words):
    with pytest.raises(TypeError, match=words):
        inline._check_sources(sources)


def test_a_compiler_finds_our_ninja_and_speaks_english(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    before = dict(os.environ)
    with inline._tools():
        ours = str(Path(sys.executable).parent)
        assert os.environ["PATH"] == f"{ours}{os.pathsep}{before['PATH']}"
        assert os.environ["LC_ALL"] == "C" and os.environ["TORCH_CUDA_ARCH_LIST"] == "8.0"
    assert dict(os.environ) == before
    with inline._tools(cuda=True):
        assert "TORCH_CUDA_ARCH_LIST" not in os.environ
    assert dict(os.environ) == before


def test_the_environment_is_as_it_was_after_a_failed_build_too(compiler, monkeypatch):
    monkeypatch.delenv("LC_ALL", raising=False)
    before, compiler.error = dict(os.environ), RuntimeError("your code:1:1: error: no")
    with pytest.raises(CompileError):
        build_library(ANSWER)
    assert compiler.environment["LC_ALL"] == "C" and dict(os.environ) == before


@pytest.mark.parametrize(
    "name, words",
    [
        ("g++ -O3", "CXX names one program, without arguments; yours is 'g\\+\\+ -O3'"),
        (
            "no-such-compiler",
            "`no-such-compiler` is not installed, .* apt-get install g\\+\\+$",
        ),
    ],
)
def test_a_compiler_that_is_no_program_is_refused(compiler, monkeypatch, name, words):
    monkeypatch.setenv("CXX", name)
    with pytest.raises(CompileError, match=words):
        build_library(ANSWER)
    assert compiler.asked == []


def test_a_compiler_may_lie_in_a_folder_whose_name_has_a_space(compiler, program, monkeypatch):
    monkeypatch.setenv("CXX", program("my compiler", ""))
    assert build_library(ANSWER)[0] == "library"


def test_without_ninja_it_is_said_how_to_get_it(compiler, monkeypatch):
    found = {"ninja": None}
    monkeypatch.setattr(shutil, "which", lambda tool: found.get(tool, tool))
    with pytest.raises(
        CompileError, match="`ninja` is not installed, .* make lab, which inst"
    ):
        build_library(ANSWER)


@pytest.mark.parametrize(
    "lines, symbol",
    [('echo "  plain $1"', "plain _Z7missingi"), ("exit 1", "_Z7missingi")],
)
def test_a_function_that_is_not_defined_is_named_as_in_cpp(compiler, program, lines, symbol):
    program("c++filt", lines)
    compiler.error = failure(
        ImportError("hides it"), OSError("undefined symbol: _Z7missingi!")
    )
    with pytest.raises(CompileError) as caught:
        build_library(ANSWER)
    assert str(caught.value) == f"`{symbol}` is declared but never defined."
    assert caught.value.reason == f"undefined symbol {symbol}"


def test_without_a_tool_for_names_the_symbol_is_told(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    error = inline._explain_load(OSError("undefined symbol: _Z7missingi"))
    assert str(error) == "`_Z7missingi` is declared but never defined."


@pytest.mark.parametrize("kind", [ImportError, OSError])
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_library_that_does_not_load_is_removed(compiler, builds, kind, is_gone):
    def refuse(library):
        if is_gone:
            shutil.rmtree(library.parent)
        raise kind("rubbish")

    library = inline._compile({"mine": "text"}, "x", Recipe())
    with pytest.raises(CompileError, match="cannot be loaded: rubbish"):
        inline._load(library, refuse)
    assert names(builds) == set()
    assert inline._load(library, str) == str(library)


def test_a_module_is_not_known_to_other_imports(tmp_path, monkeypatch):
    """A Python text is imported in the same way as PyTorch's libraries."""
    monkeypatch.undo()
    library = tmp_path / "no_other.py"
    library.write_text("answer = 42")
    module = inline._load(library, inline._import)
    assert (module.__name__, module.answer) == ("no_other", 42)
    assert "no_other" not in sys.modules and inline._loaded.pop(library) is module
