"""The flags and texts that CUDA is compiled with, for each target, compiler and machine.

Nothing is compiled: the compilers are shell scripts.
"""

import ctypes
import platform
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils import cpp_extension

from lessons_lib import cuda_builds
from lessons_lib.compiler import Recipe
from lessons_lib.cuda_on_cpu.rewrite import rewrite

TEXT = "__global__ void k() {}\nvoid f() { k<<<1, 2>>>(); }\n"
SOURCES = {"a.cu": TEXT, "b.cu": "// nothing"}
GCC, CLANG = "echo 'g++ (GCC) 13'", "echo 'Ubuntu clang version 14'"
RUNTIME = Path("/somewhere/runtime.so")
RPATH = ("-Xlinker", "-rpath", "-Xlinker", "/somewhere")


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Makes the compiler a script with these lines."""

    def write(lines: str):
        script = tmp_path / "compiler"
        script.write_text(f"#!/bin/sh\n{lines}\n")
        script.chmod(0o700)
        monkeypatch.setenv("CXX", str(script))

    write(GCC)
    return write


@pytest.fixture
def system(monkeypatch):
    """Makes the system one of this name."""

    def choose(name: str):
        monkeypatch.setattr(cuda_builds, "sys", SimpleNamespace(platform=name))

    choose("linux")
    return choose


@pytest.fixture
def builds(monkeypatch):
    """What is asked to be compiled, in order. The library is /built/NAME.so."""
    asked = []

    def remember(sources, name, recipe, rewritten=None, before=None, after=None):
        asked.append(
            SimpleNamespace(
                sources=sources, recipe=recipe, texts=rewritten, before=before, after=after
            )
        )
        return Path(f"/built/{name}.so")

    monkeypatch.setattr(cuda_builds, "_compile", remember)
    monkeypatch.setattr(cuda_builds, "_load", lambda library, loader: (library, loader))
    return asked


@pytest.mark.parametrize(
    "missing, asked, got",
    [
        ("", None, "gpu"),
        ("no nvcc.", None, "checked"),
        ("", "gpu", "gpu"),
        ("", "fast", "fast"),
        ("no nvcc.", "fast", "fast"),
        ("no nvcc.", "checked", "checked"),
    ],
)
def test_the_target_is_what_was_asked_for_or_the_best_that_is_here(
    monkeypatch, missing, asked, got
):
    monkeypatch.setattr(cuda_builds, "no_gpu", lambda: missing)
    assert cuda_builds.choose_target(asked) == got


def test_a_target_that_cannot_be_had_is_an_error_that_says_why(monkeypatch):
    monkeypatch.setattr(cuda_builds, "no_gpu", lambda: "no nvcc.")
    with pytest.raises(
        RuntimeError, match='"gpu" cannot be had here: no nvcc. The targets "ch'
    ):
        cuda_builds.choose_target("gpu")
    with pytest.raises(ValueError, match="one of gpu, fast, checked, or None .*; not 'cpu'"):
        cuda_builds.choose_target("cpu")


def test_for_a_gpu_the_text_gets_functions_for_its_errors(builds, monkeypatch):
    monkeypatch.setattr(cuda_builds, "_gpus", lambda: "some GPU")
    assert cuda_builds.build_for_gpu(SOURCES, "mine") == (Path("/built/mine.so"), ctypes.CDLL)
    (build,) = builds
    assert build.sources == SOURCES and [*build.texts] == ["a.cu", "b.cu", "lessons_lib"]
    assert build.texts["a.cu"] == TEXT
    assert "int lessons_lib_last_error() {" in build.texts["lessons_lib"]
    assert "char* lessons_lib_error_text(int code) {" in build.texts["lessons_lib"]
    assert build.recipe.cuda and build.recipe.also == "some GPU['a.cu', 'b.cu']"
    flags = build.recipe.flags
    assert flags[flags.index("cstdint") - 1] == "-include" and "-std=c++17" in flags
    assert flags[-1] == "-arch=native"


def test_one_architecture_may_be_asked_for(builds):
    cuda_builds.build_for_gpu(SOURCES, "mine", "90a")
    assert builds[0].recipe.flags[-1] == "-gencode=arch=compute_90a,code=sm_90a"


def test_a_build_for_a_gpu_depends_on_the_kinds_of_gpu_and_on_the_toolkit(monkeypatch):
    kinds = {0: (9, 0), 1: (8, 0), 2: (9, 0)}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(kinds))
    monkeypatch.setattr(torch.cuda, "get_device_capability", kinds.__getitem__)
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", "/cuda")
    assert cuda_builds._gpus() == "[(8, 0), (9, 0)] 12.4 /cuda"


@pytest.mark.parametrize("target", ["fast", "checked"])
def test_for_the_cpu_the_rewritten_text_is_compiled_and_linked_to_its_runtime(
    builds, monkeypatch, compiler, system, target
):
    monkeypatch.setattr(cuda_builds, "_processor", lambda: "processor")
    built = cuda_builds.build_for_cpu(SOURCES, "mine", target, RUNTIME)
    assert built == (Path("/built/mine.so"), ctypes.CDLL)
    (build,) = builds
    assert build.sources == SOURCES
    assert build.texts == {name: rewrite(text, name) for name, text in SOURCES.items()}
    assert "<<<" in TEXT and "<<<" not in build.texts["a.cu"]
    assert build.recipe == Recipe(
        cuda_builds._flags(target),
        include=(cuda_builds.CUDA_ON_CPU / "include",),
        link=(str(RUNTIME), *RPATH, "-pthread", "-ldl"),
        also=f"{cuda_builds._own_text()}{cuda_builds._rules()}processor['a.cu', 'b.cu']",
    )
    if target == "fast":
        assert build.before is None and build.after is None


def test_a_watched_build_is_inspected_before_and_after(builds, monkeypatch, compiler):
    seen = []
    for name in "refuse_text", "refuse_symbols":
        monkeypatch.setattr(cuda_builds.unwatched, name, lambda *given: seen.append(given))
    compiler("cat")
    cuda_builds.build_for_cpu(SOURCES, "mine", "checked", RUNTIME)
    builds[0].before("what is compiled\n", "module")
    builds[0].after(Path("/built/mine.so"))
    assert seen == [
        ("what is compiled\n", SOURCES),
        (Path("/built/mine.so"), RUNTIME, SOURCES),
    ]


RECIPE = Recipe(("-O7", "-include"), include=(Path("/ours"), Path("/more")))


def test_the_preprocessor_gets_the_text_and_the_flags_of_the_compiler(compiler):
    compiler(r"""printf '%s\n' "$@"; cat; printf '\377'""")
    *words, text = cuda_builds._preprocessed("the text", "mine", RECIPE).split("\n")
    assert text == "the text\N{REPLACEMENT CHARACTER}"
    system = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    assert words == [
        "-std=c++20",
        "-DTORCH_EXTENSION_NAME=mine",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *("-O7", "-include", "-I/ours", "-I/more"),
        *(word for folder in system for word in ("-isystem", folder)),
        *("-fPIC", "-E", "-x", "c++", "-"),
    ]


@pytest.mark.parametrize("ending", ["exit 1", "exit 2", "kill $$"])
def test_the_output_of_a_preprocessor_that_fails_is_not_used(compiler, ending):
    compiler(f"cat; {ending}")
    assert cuda_builds._preprocessed("the text", "mine", RECIPE) == ""


def test_without_a_compiler_nothing_is_preprocessed(monkeypatch):
    monkeypatch.setenv("CXX", "/no/such/compiler")
    assert cuda_builds._preprocessed("the text", "mine", RECIPE) == ""


@pytest.mark.parametrize("checked, name", [(False, "fast"), (True, "checked")])
@pytest.mark.parametrize("words, is_gcc", [(GCC, True), (CLANG, False)])
def test_each_runtime_is_built_from_our_folder(
    builds, compiler, system, checked, name, words, is_gcc
):
    compiler(words)
    built = cuda_builds.runtime_library(checked)
    assert built == Path(f"/built/cuda_on_cpu_{name}.so")
    (build,) = builds
    assert build.sources == {"runtime.cpp": '#include "runtime.cpp"'} and build.texts is None
    flags = build.recipe.flags
    assert f"-DCHECKED={int(checked)}" in flags and ("-fno-gnu-unique" in flags) == is_gcc
    assert build.recipe == Recipe(
        flags,
        include=(cuda_builds.CUDA_ON_CPU,),
        link=("-pthread", "-ldl"),
        also=cuda_builds._own_text(),
    )
    (folder,) = build.recipe.include
    assert (folder / "runtime.cpp").is_file()


COMMON = {"-std=c++17", "-fno-exceptions", "-gdwarf-4", "cuda_runtime.h"}
GCC_ONLY = {"-fno-gnu-unique"}
WATCHED = {"-fsanitize=thread", "-fsanitize-coverage=trace-pc"}
WATCHED_BY_GCC = {"-O1", "-fno-tree-sra", "-fno-builtin-memcpy"}
WATCHED_BY_CLANG = {"-O0", "-mllvm", "-tsan-instrument-read-before-write"}


@pytest.mark.parametrize(
    "target, words, wanted",
    [
        ("fast", GCC, {"-O3", "-g1"} | GCC_ONLY),
        ("fast", CLANG, {"-O3", "-g1"}),
        ("checked", GCC, WATCHED | WATCHED_BY_GCC | GCC_ONLY),
        ("checked", CLANG, WATCHED | WATCHED_BY_CLANG),
    ],
)
def test_each_target_and_compiler_has_its_flags(compiler, target, words, wanted):
    compiler(words)
    some = {"-O3", "-g1"} | GCC_ONLY | WATCHED | WATCHED_BY_GCC | WATCHED_BY_CLANG
    flags = set(cuda_builds._flags(target))
    assert flags >= COMMON and flags & some == wanted


@pytest.mark.parametrize(
    "machine, flag",
    [("x86_64", "-march=native"), ("AMD64", "-march=native"), ("aarch64", "-mcpu=native")],
)
def test_the_code_is_for_this_processor(monkeypatch, compiler, machine, flag):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    native = [flag for flag in cuda_builds._flags("fast") if "native" in flag]
    assert native == [flag]


@pytest.mark.parametrize("name, is_clang", [("linux", False), ("darwin", True)])
def test_a_missing_compiler_counts_as_the_systems_usual_one(system, name, is_clang):
    system(name)
    cuda_builds._compiler_is_clang.cache_clear()
    assert cuda_builds._compiler_is_clang("/no/such/compiler") is is_clang


def test_a_library_is_linked_as_its_system_wants(system):
    assert cuda_builds._link() == ("-pthread", "-ldl")
    system("darwin")
    assert cuda_builds._link() == ("-pthread", "-Wl,-install_name,@rpath/runtime.so")
    assert cuda_builds._link_to(RUNTIME) == (
        "/somewhere/runtime.so",
        *RPATH,
        "-pthread",
    )


@pytest.mark.parametrize(
    "target, name, words, wraps",
    [
        ("checked", "linux", CLANG, True),
        ("fast", "linux", CLANG, False),
        ("checked", "darwin", CLANG, False),
        ("checked", "linux", GCC, False),
    ],
)
def test_copies_of_clang_are_watched_where_its_linker_can(
    compiler, system, target, name, words, wraps
):
    compiler(words)
    system(name)
    flags = cuda_builds._watched_copies(target)
    assert flags == (("-Wl,--wrap=memcpy,--wrap=memset",) if wraps else ())


@pytest.mark.usefixtures("plain_locale")
def test_a_build_depends_on_all_our_headers_and_on_the_rules(tmp_path, monkeypatch):
    (tmp_path / "more.h").mkdir()
    for name, text in {
        "b.h": "two é ",
        "a.cpp": "one ",
        "more.h/c": "three",
        "a.py": "no",
        "a.pyc": "no",
        "README.md": "no",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(cuda_builds, "CUDA_ON_CPU", tmp_path)
    assert cuda_builds._own_text() == "one two é three"
    monkeypatch.setattr(cuda_builds.unwatched, "__file__", str(tmp_path / "b.h"))
    assert cuda_builds._rules() == "two é "


@pytest.mark.parametrize(
    "text, features",
    [
        ("model: 3\nflags\t: fpu sse\nflags\t: again", "flags\t: fpu sse"),
        ("model: 3\nFeatures\t: asimd", "Features\t: asimd"),
        ("model: 3", "a processor"),
        (None, "a processor"),
    ],
)
def test_a_build_depends_on_what_the_processor_can_do(tmp_path, monkeypatch, text, features):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(
        cuda_builds, "Path", lambda name: tmp_path / name.removeprefix("/proc/")
    )
    monkeypatch.setattr(platform, "processor", lambda: "a processor")
    assert cuda_builds._processor.__wrapped__() == features
