"""Nothing in an answer can switch checked mode's watch off: each way is refused by name, at
its line.
"""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from lessons_lib import CompileError, build_cuda
from lessons_lib.cuda_on_cpu import unwatched

ATTRIBUTE = (
    "{} __global__ void hidden_kernel(const float* x, "
    "float* out) {{ out[threadIdx.x] = x[threadIdx.x]; }}"
)
LAUNCHER = """
extern "C" int hidden(const float* x, float* out, cudaStream_t stream) {
  hidden_kernel<<<1, 32, 0, stream>>>(x, out);
  return cudaGetLastError();
}"""
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


gcc_only = pytest.mark.skipif(
    "clang" in os.environ.get("CXX", ""), reason="GCC alone takes this one"
)


@pytest.mark.parametrize(
    "attribute, name",
    [
        ("__attribute__((no_sanitize_thread))", "no_sanitize_thread"),
        ("__attribute__((__no_sanitize_thread__))", "__no_sanitize_thread__"),
        ('__attribute__((no_sanitize("thread")))', "no_sanitize"),
        ('__attribute__((no_sanitize("coverage"), cold))', "no_sanitize"),
        ("__attribute__((no_sanitize_coverage))", "no_sanitize_coverage"),
        ("[[gnu::no_sanitize_thread]]", "no_sanitize_thread"),
        ("[[using gnu: cold, no_sanitize_thread]]", "no_sanitize_thread"),
        (
            "__attribute__((disable_sanitizer_instrumentation))",
            "disable_sanitizer_instrumentation",
        ),
        pytest.param('__attribute__((optimize("O3")))', "optimize", marks=gcc_only),
        pytest.param("[[gnu::__optimize__(3)]]", "__optimize__", marks=gcc_only),
    ],
)
def test_an_attribute_that_hides_a_function_is_refused(attribute, name):
    assert_refused(f"// first\n{ATTRIBUTE.format(attribute)}", name)


@pytest.mark.parametrize(
    "macro, used",
    [
        ("#define QUICK __attribute__((no_sanitize_thread))", "QUICK"),
        ("#define JOIN(a, b) __attribute__((a##b))", "JOIN(no_sanitize, _thread)"),
        ("#define QUICK(what) __attribute__((no_sanitize(#what)))", "QUICK(thread)"),
        ("#define no_sanit\\\nize", "__attribute__((no_sanitize_\\\nthread))"),
    ],
)
def test_a_macro_does_not_hide_it(macro, used):
    lines = f"{macro}\n{ATTRIBUTE.format(used)}"
    with pytest.raises(CompileError, match="no_sanitize") as caught:
        build(lines)
    assert caught.value.line == 1 + macro.count("\n") + 1


@pytest.mark.parametrize(
    "pragma, name",
    [
        ('#pragma GCC optimize("O3")', "#pragma GCC optimize"),
        ('#pragma GCC optimize ("no-sanitize=thread")', "#pragma GCC optimize"),
        ('_Pragma("GCC optimize(\\"O3\\")")', "#pragma GCC optimize"),
        ("#pragma GCC push_options", "#pragma GCC push_options"),
        ("#pragma clang optimize off", "#pragma clang optimize"),
        ("#pragma redefine_extname hidden_kernel __tsan_read4", "#pragma redefine_extname"),
    ],
)
def test_a_pragma_that_changes_the_compiler_is_refused(pragma, name):
    assert_refused(f"// first\n{pragma}\n{PLAIN}", name)


@pytest.mark.parametrize(
    "definition, name",
    [
        ('extern "C" void __tsan_read4(void*) {}', "__tsan_read4"),
        ('extern "C" void __sanitizer_cov_trace_pc() {}', "__sanitizer_cov_trace_pc"),
        (
            'extern "C" __attribute__((visibility("hidden"))) void __tsan_write4(void*) {}',
            "__tsan_write4",
        ),
        ("void __syncthreads(const char*, int) {}", "__syncthreads"),
        ("void __syncwarp(unsigned, const char*, int) {}", "__syncwarp"),
        ("int atomicAdd(int* to, int value) { return *to += value; }", "atomicAdd"),
    ],
)
def test_what_takes_the_place_of_the_watch_is_refused(definition, name):
    assert_refused(f"// first\n{definition}\n{PLAIN}", name)


def test_a_name_made_of_pieces_is_still_a_name():
    assert_refused(
        "#define HOOK(what) __ts##an_##what\n"
        f'extern "C" void HOOK(read4)(void*) {{}}\n{PLAIN}',
        "__tsan_read4",
    )
    assert_refused(
        "#define OWN(what) cuda_##on_cpu_##what\n"
        'extern "C" void OWN(clear)();\n'
        "void forget() { OWN(clear)(); }\n"
        f"{PLAIN}",
        "cuda_on_cpu_clear",
        None,
    )


@pytest.mark.parametrize(
    "line, name",
    [
        ("namespace cuda_on_cpu { void watch(const void*, size_t); }", "cuda_on_cpu"),
        ('extern "C" void cuda_on_cpu_clear();', "cuda_on_cpu_clear"),
        ("#define CUDA_SHARED(type, name, size) static type name size", "CUDA_SHARED"),
        ("#define CUDA_ON_CPU_CHECKED 0", "CUDA_ON_CPU_CHECKED"),
        ('#line 1 "/usr/include/stdio.h"', "of another number"),
        ('# 1 "/usr/include/stdio.h" 3', "of another number"),
    ],
)
def test_names_of_the_stand_in_are_refused(line, name):
    assert_refused(f"// first\n{line}\n{PLAIN}", name)


@pytest.mark.parametrize("header", ["watch.h", "report.h", "../cuda_on_cpu/hooks.h"])
def test_headers_of_the_runtime_are_refused(header):
    text = f'// first\n#include "../{header}"\n{PLAIN}'
    with pytest.raises(
        CompileError, match=r"CPU stand-in|not declared|expected|error|undefined"
    ) as caught:
        build(text)
    assert caught.value.line in (2, None)


@pytest.mark.parametrize("code", ['asm("nop");', '__asm__ volatile("nop");', '__asm("nop");'])
def test_machine_code_is_refused(code):
    assert_refused(
        f"__device__ void quick() {{\n  {code}\n}}\n{PLAIN}", "hides what it reads and writes"
    )


@pytest.mark.parametrize(
    "call, name",
    [
        ("memccpy(out, x, 0, 4 * n);", "memccpy"),
        ("swab(x, out, 4 * n);", "swab"),
        ("strncpy((char*)out, (const char*)x, n);", "strncpy"),
    ],
)
def test_functions_of_the_c_library_that_nobody_watches_are_refused(call, name):
    assert_refused(
        "#include <unistd.h>\n"
        f"void copy(const float* x, float* out, int n) {{ {call} }}\n{PLAIN}",
        name,
    )


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


def test_a_refused_answer_is_refused_again_and_leaves_no_build(tmp_path, monkeypatch):
    monkeypatch.setenv("LESSONS_BUILD_DIR", str(tmp_path))
    for _ in range(2):
        assert_refused(
            f"// first\n{ATTRIBUTE.format('__attribute__((no_sanitize_thread))')}",
            "no_sanitize_thread",
        )
    assert not [
        path for path in tmp_path.iterdir() if path.is_dir() and "unwatched" in path.name
    ]


@pytest.mark.heavy
def test_without_the_tool_that_lists_symbols_the_text_is_still_looked_at(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("LESSONS_BUILD_DIR", str(tmp_path))
    monkeypatch.setattr("lessons_lib.cuda_on_cpu.unwatched._symbols", lambda library: {})
    assert_refused(
        f'// first\nextern "C" void __tsan_read4(void*) {{}}\n{PLAIN}', "__tsan_read4"
    )
    assert shutil.which("nm") is None or build(f"// {tmp_path}\n{PLAIN}").target == "checked"


@pytest.mark.skipif(sys.platform != "linux", reason="macOS adds an underscore to each name")
@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_the_names_in_a_library_are_those_of_its_text(tmp_path):
    library, text = tmp_path / "library.so", tmp_path / "text.cpp"
    text.write_text('extern "C" { int _one, __two = 2; int three() { return 3; } }')
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, text], check=True)
    found = unwatched._symbols(library)
    assert {name: found[name][0] for name in ("_one", "__two", "three")} == {
        "_one": "B",
        "__two": "D",
        "three": "T",
    }
