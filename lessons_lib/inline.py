"""Builds C++ from a notebook: a thin wrapper over PyTorch's `load_inline`.

It adds four things: builds without implicit headers, which take less than a quarter of the
time; a folder for each source text; errors at the learner's own line; and builds that survive
an interruption, a failure or a stale lock.
"""

import ctypes
import fcntl
import hashlib
import importlib.util
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from lessons_lib.compiler_errors import CompileError, explain
from lessons_lib.paths import KERNELS, build_folder
from lessons_processes.waiting import waiting

# With C++17 and -Og, pybind11 compiles in 60 % of the time that PyTorch's own C++20 and -O1
# take. The calls are nearly as quick.
QUICK = ("-std=c++17", "-Og")

# With a CUDA toolkit and no GPU, PyTorch would warn of that in a learner's first build.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)

_loaded: dict[Path, object] = {}


@dataclass(frozen=True)
class Recipe:
    """How texts become a library.

    flags, link: for the compiler (nvcc if `cuda`), and for the linker.
    include: folders of headers.
    also: text that the result depends on as well, such as included files.
    """

    flags: tuple[str, ...] = QUICK
    cuda: bool = False
    include: tuple[Path, ...] = ()
    link: tuple[str, ...] = ()
    also: str = ""


def build_cpp(
    *sources: str,
    names: tuple[str, ...] = (),
    name: str = "lesson",
    flags: tuple[str, ...] = QUICK,
) -> ModuleType:
    """Compiles C++ that defines a pybind11 module and imports it.

    sources: C++ texts, compiled as one file in this order. The last one holds
        `PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)`. The same texts compile only once.
    names: what error messages call the texts.
    Raises TypeError if a source is not text.
    Raises CompileError, with the learner's line, if the code does not compile.
    """
    texts = _check_sources(sources, names)
    if not any("PYBIND11_MODULE" in text for text in texts.values()):
        raise CompileError(
            "No source has PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { ... "
            "}, so Python could not import the result. Pass the binding as the last argument."
        )
    return _load(_compile(texts, name, Recipe(tuple(flags))), _import)


def build_library(
    *sources: str,
    names: tuple[str, ...] = (),
    name: str = "library",
    flags: tuple[str, ...] = QUICK,
    link: tuple[str, ...] = (),
) -> ctypes.CDLL:
    """Compiles C++ with `extern "C"` functions, to be called through ctypes.

    Without pybind11 a build takes about a second instead of ten. The arguments are those of
    `build_cpp`; `link` has flags for the linker.
    """
    return _load(
        _compile(_check_sources(sources, names), name, Recipe(tuple(flags), link=tuple(link))),
        ctypes.CDLL,
    )


def read_kernel(file_name: str) -> str:
    """The text of a file under `kernels/`, without solution markers and local includes."""
    lines = (KERNELS / file_name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if not re.match(r'\s*(// (BEGIN|END) SOLUTION|#pragma once|#include ")', line)
    )


def _check_sources(sources, names=()) -> dict[str, str]:
    """The texts by the names that error messages use."""
    if not sources:
        raise TypeError("There is nothing to build: pass at least one C++ source text.")
    for number, source in enumerate(sources, 1):
        if not isinstance(source, str):
            raise TypeError(
                f"C++ is built from text; source {number} "
                f"is {type(source).__name__}: {source!r:.80}"
            )
    if not names:
        names = (
            ["your code"]
            if len(sources) == 1
            else [f"source {number}" for number in range(1, len(sources) + 1)]
        )
    if len(set(names)) != len(sources) or any('"' in name for name in names):
        raise ValueError(
            f"Each of the {len(sources)} sources needs a name of its own, without quotes; "
            f"names is {names}"
        )
    return dict(zip(names, sources, strict=True))


def _compile(
    sources: dict[str, str],
    name: str,
    recipe: Recipe,
    rewritten: dict[str, str] | None = None,
    before: Callable[[str, str], None] | None = None,
    after: Callable[[Path], None] | None = None,
) -> Path:
    """The shared library of `sources`. Compiled only if there is no finished build of it yet.

    rewritten: what the compiler gets instead of `sources`, with the same lines. Errors show
        `sources`.
    before: called with the whole text and the module's name before compilation.
    after: called with the library before it counts as finished.
    Raises CompileError if the text does not compile, or if `before` or `after` refuses it.
    """
    compiled = rewritten or sources
    text = "".join(map(_placed, compiled, compiled.values()))
    module = f"{name}_{_fingerprint(list(compiled.values()), recipe)}"
    folder = build_folder() / module
    finished = folder / "finished"
    if not finished.exists():
        with _only_builder(folder):
            if not finished.exists():
                # What is here was left by a build that failed or was killed, with its lock.
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                try:
                    if before:
                        before(text, module)
                    with waiting("Compiling"):
                        _run_load_inline(module, text, folder, recipe)
                    if after:
                        after(folder / f"{module}.so")
                except (CompileError, RuntimeError, ImportError, OSError) as error:
                    shutil.rmtree(folder, ignore_errors=True)
                    if isinstance(error, CompileError):
                        raise
                    raise (
                        explain(str(error), sources, compiled)
                        if isinstance(error, RuntimeError)
                        else _explain_load(error)
                    ) from None
                finished.touch()
    return folder / f"{module}.so"


def _placed(name: str, text: str) -> str:
    """The text with its own line numbers. `extern "C" {}` at its end adds nothing.

    But if a brace or a semicolon is missing, the error appears there, not in the next text.
    """
    lines = len(text.split("\n"))
    return f'#line 1 "{name}"\n{text}\n#line {lines + 1} "{name}"\nextern "C" {{}}\n'


def _fingerprint(texts: list[str], recipe: Recipe) -> str:
    """Sixteen characters that depend on the texts, the recipe, the tools and the machine."""
    import torch

    machine = (
        torch.__version__,
        sys.implementation.cache_tag,
        platform.machine(),
        os.environ.get("CXX", ""),
    )
    return hashlib.sha256(repr((texts, recipe, machine)).encode()).hexdigest()[:16]


@contextmanager
def _only_builder(folder: Path):
    """Keeps other processes from building `folder`. The lock ends with the process."""
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run_load_inline(module: str, text: str, folder: Path, recipe: Recipe):
    from torch.utils import cpp_extension

    # PyTorch remembers each name that it built in this process, even after a failed build.
    # Our builds always start from nothing.
    cpp_extension.JIT_EXTENSION_VERSIONER.entries.pop(module, None)
    # PyTorch changes the lists that it gets, so it gets copies. With is_python_module=False it
    # loads the library but does not import it. We import it once, later.
    if recipe.cuda:
        texts = {"cpp_sources": "", "cuda_sources": text, "extra_cuda_cflags": [*recipe.flags]}
    else:
        texts = {"cpp_sources": text, "extra_cflags": [*recipe.flags]}
    with _tools(recipe.cuda):
        cpp_extension.load_inline(
            module,
            **texts,
            extra_ldflags=[shlex.quote(flag) for flag in recipe.link],
            extra_include_paths=[str(folder) for folder in recipe.include],
            build_directory=str(folder),
            no_implicit_headers=True,
            is_python_module=False,
        )


@contextmanager
def _tools(cuda: bool = False):
    """Puts the environment's ninja on the PATH and makes the compiler speak English."""
    before = {
        name: os.environ.get(name) for name in ("PATH", "LC_ALL", "TORCH_CUDA_ARCH_LIST")
    }
    os.environ["PATH"] = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    os.environ["LC_ALL"] = "C"
    if cuda:
        os.environ.pop("TORCH_CUDA_ARCH_LIST", None)  # then PyTorch builds for the GPUs here
    try:
        compiler = os.environ.get("CXX", "c++")
        if " " in compiler.strip() and shutil.which(compiler) is None:
            raise CompileError(
                "For PyTorch, CXX names one program, without arguments; "
                f"yours is {compiler!r}."
            )
        for tool, remedy in (
            (compiler, "sudo apt-get install g++"),
            ("ninja", "make lab, which installs it"),
        ):
            if shutil.which(tool) is None:
                raise CompileError(
                    f"`{tool}` is not installed, so C++ cannot be built here. To get it: "
                    f"{remedy}"
                )
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _explain_load(error: Exception) -> CompileError:
    """A library that compiled but does not load: nearly always a function is undefined."""
    reason = str(error.__cause__ or error)  # PyTorch's message hides the loader's
    match = re.search(r"undefined symbol: (\w+)", reason)
    if not match:
        return CompileError(f"The code compiled but cannot be loaded: {reason}")
    symbol = match[1]
    if shutil.which("c++filt"):
        symbol = (
            subprocess.run(["c++filt", symbol], capture_output=True, text=True).stdout.strip()
            or symbol
        )
    return CompileError(
        f"`{symbol}` is declared but never defined.", reason=f"undefined symbol {symbol}"
    )


def _load(library: Path, loader):
    if library not in _loaded:
        try:
            _loaded[library] = loader(library)
        except (ImportError, OSError) as error:
            shutil.rmtree(library.parent, ignore_errors=True)
            raise _explain_load(error) from None
    return _loaded[library]


def _import(library: Path) -> ModuleType:
    """The Python module in `library`. It is not entered in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(library.stem, library)
    assert spec is not None and spec.loader is not None  # it ends in .so
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
