"""Nothing in an answer can switch checked mode's watch off: each way is refused by name, at
its line.
"""

import os
import shutil

import pytest
import torch

from cuda_text import launcher
from lessons_lib import CompileError, build_cuda
from lessons_lib.paths import build_folder

ATTRIBUTE = (
    "{} __global__ void hidden_kernel(const float* x, "
    "float* out) {{ out[threadIdx.x] = x[threadIdx.x]; }}"
)
LAUNCHER = launcher("hidden(const float* x, float* out)", threads="32")
PLAIN = ATTRIBUTE.format("")


def build(text: str, target: str = "checked"):
    return build_cuda(text + LAUNCHER, target=target, name="unwatched")


def assert_refused(text: str, name: str, line: int | None = 2):
    with pytest.raises(CompileError) as caught:
        build(text)
    assert name in caught.value.reason and caught.value.line == line, caught.value
    if line:
        assert caught.value.source == "your code"
        assert f"\n    {text.splitlines()[line - 1]}" in str(caught.value)


QUICK = "#define QUICK"
gcc_only = pytest.mark.skipif(
    "clang" in os.environ.get("CXX", ""), reason="GCC alone takes this one"
)


@pytest.mark.parametrize(
    "attribute, name",
    [
        ("__attribute__((no_sanitize_thread))", "no_sanitize_thread"),
        ("__attribute__((__no_sanitize_thread__))", "__no_sanitize_thread__"),
        ('__attribute__((no_sanitize("coverage"), cold))', "no_sanitize"),
        ("__attribute__((no_sanitize_coverage))", "no_sanitize_coverage"),
        ("[[gnu::no_sanitize_thread]]", "no_sanitize_thread"),
        ("[[using gnu: cold, no_sanitize_thread]]", "no_sanitize_thread"),
        ("__attribute__((disable_sanitizer_instrumentation))", "disable_sanitizer_instr"),
        pytest.param('__attribute__((optimize("O3")))', "optimize", marks=gcc_only),
        pytest.param("[[gnu::__optimize__(3)]]", "__optimize__", marks=gcc_only),
        # nor is it hidden in a macro, which is in the first line
        (f"{QUICK} __attribute__((no_sanitize_thread))\nQUICK", "no_sanitize"),
        (
            "#define JOIN(a, b) __attribute__((a##b))\nJOIN(no_sanitize, _thread)",
            "no_sanitize",
        ),
        (f"{QUICK}(what) __attribute__((no_sanitize(#what)))\nQUICK(thread)", "no_sanitize"),
        ("#define no_sanit\\\nize\n__attribute__((no_sanitize_\\\nthread))", "no_sanitize"),
    ],
)
def test_an_attribute_that_hides_a_function_is_refused(attribute, name):
    first = "" if attribute.startswith("#") else "// first\n"
    line = 2 + attribute.startswith("#define no_sanit")
    assert_refused(first + ATTRIBUTE.format(attribute), name, line)


@pytest.mark.parametrize(
    "line, name",
    [
        # what changes the compiler
        ('#pragma GCC optimize ("no-sanitize=thread")', "#pragma GCC optimize"),
        ('_Pragma("GCC optimize(\\"O3\\")")', "#pragma GCC optimize"),
        ("#pragma GCC push_options", "#pragma GCC push_options"),
        ("#pragma clang optimize off", "#pragma clang optimize"),
        ("#pragma redefine_extname hidden_kernel __tsan_read4", "#pragma redefine_extname"),
        # what takes the place of the watch
        ('extern "C" void __tsan_read4(void*) {}', "__tsan_read4"),
        ('extern "C" void __sanitizer_cov_trace_pc() {}', "__sanitizer_cov_trace_pc"),
        (
            'extern "C" [[gnu::visibility("hidden")]] void __tsan_write4(void*) {}',
            "__tsan_wri",
        ),
        ("void __syncthreads(const char*, int) {}", "__syncthreads"),
        ("void __syncwarp(unsigned, const char*, int) {}", "__syncwarp"),
        ("int atomicAdd(int* to, int value) { return *to += value; }", "atomicAdd"),
        # names of the stand-in
        ("namespace cuda_on_cpu { void watch(const void*, size_t); }", "cuda_on_cpu"),
        ('extern "C" void cuda_on_cpu_clear();', "cuda_on_cpu_clear"),
        ("#define CUDA_SHARED(type, name, size) static type name size", "CUDA_SHARED"),
        ("#define CUDA_ON_CPU_CHECKED 0", "CUDA_ON_CPU_CHECKED"),
        ('#line 1 "/usr/include/stdio.h"', "of another number"),
        ('# 1 "/usr/include/stdio.h" 3', "of another number"),
        # machine code, and the C library's functions that nobody watches
        ('__device__ void quick() { asm("nop"); }', "hides what it reads and writes"),
        ('__device__ void quick() { __asm__ volatile("nop"); }', "hides what it reads"),
        ("void copy(float* x, int n) { memccpy(x, x + n, 0, 4 * n); }", "memccpy"),
        ("void copy(char* x, int n) { strncpy(x, x + n, n); }", "strncpy"),
    ],
)
def test_a_line_that_changes_the_watch_is_refused(line, name):
    assert_refused(f"// first\n{line}\n{PLAIN}", name)


def test_a_name_made_of_pieces_is_still_a_name():
    hook = """#define HOOK(what) __ts##an_##what
extern "C" void HOOK(read4)(void*) {}"""
    assert_refused(f"{hook}\n{PLAIN}", "__tsan_read4")
    own = """#define OWN(what) cuda_##on_cpu_##what
extern "C" void OWN(clear)(); void forget() { OWN(clear)(); }"""
    assert_refused(f"{own}\n{PLAIN}", "cuda_on_cpu_clear", None)


@pytest.mark.parametrize("header", ["watch.h", "../cuda_on_cpu/hooks.h"])
def test_headers_of_the_runtime_are_refused(header):
    text = f'// first\n#include "../{header}"\n{PLAIN}'
    words = r"CPU stand-in|not declared|expected|error|undefined"
    with pytest.raises(CompileError, match=words) as caught:
        build(text)
    assert caught.value.line in (2, None)


def test_what_only_looks_like_it_stays():
    text = f"""// __attribute__((no_sanitize_thread)) asm("nop") __tsan_read4 cuda_on_cpu
// #pragma GCC optimize
/* #line 3 */
const char* text = "__attribute__((no_sanitize_thread)) asm() __tsan_read4 cuda_on_cpu";
#ifdef __CUDACC__
__device__ void quick() {{ asm volatile("nanosleep.u32 100;"); }}
#endif
#include <algorithm>
#include <cstdlib>
#include <vector>
#pragma GCC diagnostic ignored "-Wall"
int optimize(int asm_) {{
  int no_sanitizer = asm_, row[2] = {{1, 2}};
  return row[row[0] > 1] + no_sanitizer;
}}
__attribute__((noinline)) __device__ int twice(int x) {{ return 2 * optimize(x); }}
{PLAIN}"""
    x = torch.arange(32.0)
    for target in ("fast", "checked"):
        out = torch.zeros(32)
        build(text, target).hidden(x, out)
        assert torch.equal(out, x)


def test_a_header_of_the_learners_own_is_looked_at_too(tmp_path):
    (tmp_path / "quick.h").write_text(
        "#define QUICK __attribute__((no_sanitize_thread))\nQUICK static void quick() {}\n"
    )
    with pytest.raises(CompileError, match=r"quick.h, line 2: no_sanitize_thread"):
        build(f'#include "{tmp_path}/quick.h"\n{PLAIN}')


REPLACED = f'// first\nextern "C" void __tsan_read4(void*) {{}}\n{PLAIN}'


def test_a_refused_answer_is_refused_again_and_leaves_no_build():
    for _ in range(2):
        assert_refused(REPLACED, "__tsan_read4")
    texts = [path.read_text() for path in build_folder().glob("unwatched_*/*.cpp")]
    assert [text for text in texts if "__tsan_read4(" in text] == []


@pytest.mark.slow
def test_without_the_tool_that_lists_symbols_the_text_is_still_looked_at(
    monkeypatch, tmp_path
):
    for name in ("c++", "as", "ld", "sh"):  # and no nm
        (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_refused(REPLACED, "__tsan_read4")
    assert build(f"// {tmp_path}\n{PLAIN}").target == "checked"
