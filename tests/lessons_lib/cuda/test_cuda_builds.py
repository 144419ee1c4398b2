"""What the compiler is told for each CPU target, and when a text is compiled again.

The compiler is a script: it makes empty libraries, and has the runtime ready.
"""

import os
import shutil
import sys

import pytest

from compiler_script import CompilerScript
from lessons_lib import CompileError, build_cuda
from lessons_lib.cuda.builds import runtime_library
from lessons_lib.paths import ROOT
from python_process import python

TEXT = 'extern "C" int nothing(cudaStream_t stream) { return 0; }'
GCC, CLANG = "g++ (GCC) 13", "Ubuntu clang version 14"
COMMANDS = """
case "$*" in
  --version) echo '{version}'; exit;;
  *" -E "*) exec sed 's/^#line/#/';;  # as the preprocessor says it
  *" -c "*) exec c++ -fPIC -x c++ -c /dev/null -o main.o;;
esac
case "$4" in
  cuda_on_cpu_checked*) exec cp '{checked}' "$4";;
  cuda_on_cpu_fast*) exec cp '{fast}' "$4";;
esac
exec c++ -shared main.o -o "$4"
"""


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Makes the compiler one that calls itself by these words, in a folder without builds."""
    runtimes = {name: runtime_library(name == "checked") for name in ("checked", "fast")}

    def choose(version: str) -> CompilerScript:
        monkeypatch.setenv("LESSONS_BUILD_DIR", str(tmp_path))
        commands = COMMANDS.format(version=version, **runtimes)
        return CompilerScript(monkeypatch, tmp_path, commands)

    return choose


COMMON = {"-std=c++17", "-fno-exceptions", "-gdwarf-4", "cuda_runtime.h", "-U_FORTIFY_SOURCE"}
GCC_ONLY = {"-fno-gnu-unique"}
WATCHED = {"-fsanitize=thread", "-fsanitize-coverage=trace-pc"}
WATCHED_BY_GCC = {"-O1", "-fno-tree-sra", "-fno-builtin-memcpy"}
WATCHED_BY_CLANG = {"-O0", "-mllvm", "-tsan-instrument-read-before-write"}
EITHER = {"-O3", "-g1"} | GCC_ONLY | WATCHED | WATCHED_BY_GCC | WATCHED_BY_CLANG


@pytest.mark.parametrize(
    "target, version, wanted",
    [
        ("fast", GCC, {"-O3", "-g1"} | GCC_ONLY),
        ("fast", CLANG, {"-O3", "-g1"}),
        ("checked", GCC, WATCHED | WATCHED_BY_GCC | GCC_ONLY),
        ("checked", CLANG, WATCHED | WATCHED_BY_CLANG),
    ],
)
def test_each_target_and_compiler_has_its_flags(compiler, target, version, wanted):
    script = compiler(version)
    build_cuda(TEXT, target=target)
    runtime, kernel = map(set, script.compiled())
    assert kernel >= COMMON and kernel & EITHER == wanted
    assert kernel & {"-march=native", "-mcpu=native"}
    assert f"-DCHECKED={int(target == 'checked')}" in runtime
    assert ("-fno-gnu-unique" in runtime) == (version == GCC)
    linked = script.calls()[-1]
    assert any("cuda_on_cpu_" in word and word.endswith(".so") for word in linked)
    if sys.platform == "linux":  # Clang before 15 copies structs with memcpy
        wraps = "-Wl,--wrap=memcpy,--wrap=memset" in linked
        assert wraps == ((target, version) == ("checked", CLANG))


@pytest.mark.parametrize("target", ["fast", "checked"])
def test_a_header_that_is_not_there_is_an_error_at_its_line(target):
    """The preprocessor fails as well, so that the watch has nothing to look at."""
    with pytest.raises(
        CompileError, match="your code, line 2: nothing.h: No such|'nothing.h'"
    ):
        build_cuda(f"// first\n#include <nothing.h>\n{TEXT}", target=target)


PROGRAM = """
from pathlib import Path
from lessons_lib import build_cuda, cuda_on_cpu
folder = Path(cuda_on_cpu.__file__).parent
for changed in (None, "README.md", "warp.h", "runtime.cpp", "include/cuda.h", "unwatched.py"):
    if changed:
        path = folder / changed
        path.write_text(path.read_text(encoding="utf-8") + "\\n", encoding="utf-8")
    build_cuda(TEXT, target="checked")
    print(sum(" -c " in line for line in open(CALLS)))
"""


def test_a_change_of_our_headers_or_rules_is_a_new_build(compiler, tmp_path):
    """Or a course that was brought up to date would use what an older one has built."""
    script = compiler(GCC)
    shutil.copytree(ROOT / "lessons_lib", tmp_path / "lessons_lib")
    program = f"TEXT, CALLS = {TEXT!r}, {str(script.log)!r}{PROGRAM}"
    ran = python("-c", program, cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    # the runtime and the kernels each time, but for a page, and for rules, which are not its
    assert ran.stdout.split() == ["2", "2", "4", "6", "8", "9"], ran.stderr
