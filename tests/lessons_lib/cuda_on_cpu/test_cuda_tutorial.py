"""CUDA that others write: what a first tutorial uses gives here what a GPU gives.

cuda_tutorial.cu has whole programs. LINES has expressions, each computed by 32 threads, with
what a GPU gives as an expression of Python. `lane` is the thread's number in both."""

import math
import re
import shutil
import subprocess

import pytest
import torch

from cuda_text import Kernels, device_of, each_target, launcher
from lessons_lib import CompileError, build_cuda
from lessons_lib.cuda.builds import CUDA_ON_CPU
from lessons_lib.cuda_on_cpu.left_out import LEFT_OUT
from lessons_lib.paths import ROOT

PROGRAMS_TEXT = (ROOT / "tests/banks/cuda_tutorial.cu").read_text()
PROGRAMS = re.findall(
    r'^// gives (.+)\nextern "C" int (\w+)\(', PROGRAMS_TEXT, flags=re.MULTILINE
)
ONE_THIRD_DOWN, ONE_THIRD_UP = 0.3333333134651184, 0.3333333432674408  # floats around 1/3
LINES = """
threadIdx.x + blockIdx.x * blockDim.x | lane
gridDim.x * warpSize | 32
__brev(1u << lane) | 1 << 31 - lane
__brevll(2ull) == 1ull << 62 | 1
__clzll(1ll << lane) | 63 - lane
__ffsll(1ll << 40) | 41
__popcll(~0ull >> lane) | 64 - lane
__byte_perm(0x33221100, 0x77665544, 0x7410) | 0x77441100
__byte_perm(0x33221100, 0x77665544, 0x1623) | 0x11662233
__funnelshift_l(0x80000000u, 1u, 4) | 24
__funnelshift_r(0x80000000u, 1u, 31) | 3
__mulhi(1 << 30, lane) | lane >> 2
__umulhi(1u << 31, lane) | lane >> 1
__mul64hi(1ll << 62, 8) | 2
__umul64hi(1ull << 63, 6) | 3
__mul24(-3, lane) | -3 * lane
__umul24(0x1000003u, 5u) | 15
__sad(-4, 3, 10u) | 17
__usad(2u, 9u, 1u) | 8
__hadd(-3, 2) | -1
__rhadd(3, 4) | 4
__uhadd(~0u, 1u) | 1 << 31
__dp4a(0x01020304, 0x01010101, 5) | 15
__fadd_rn(1.0f, 0x1p-24f) - 1 | 0
__fadd_ru(1.0f, 0x1p-24f) - 1 | 2**-23
__fadd_rd(-1.0f, -0x1p-30f) + 1 | -(2**-23)
__fadd_rz(-1.0f, -0x1p-30f) + 1 | 0
__fsub_rn(lane, 0.5f) | lane - 0.5
__fmul_rn(lane, lane) | lane * lane
__fadd_rn(__fmul_rn(1.1f, 1.1f), -1.21000004f) | 0
__fmaf_rn(2.0f, lane, 1.0f) | 2 * lane + 1
__fdiv_rd(1.0f, 3.0f) | DOWN
__fdiv_ru(1.0f, 3.0f) | UP
__frcp_rn(3.0f) | UP
__fsqrt_rn(lane * lane) | lane
__frsqrt_rn(4.0f) | 0.5
__dadd_ru(1.0, 0x1p-60) - 1 | 2**-52
__dmul_rn(lane, 0.1) | lane * 0.1
__ddiv_rn(lane, 7.0) | lane / 7
__dsqrt_rn(lane) | math.sqrt(lane)
__fma_rn(0.5, lane, 1.0) | lane / 2 + 1
__float2int_rn(lane + 0.5f) | lane + lane % 2
__float2int_rz(-lane - 0.9f) | -lane
__float2int_ru(0.1f) | 1
__float2int_rd(-0.1f) | -1
__float2uint_rn(-1.0f) | 0
__float2int_rn(1e20f) | 2147483647
__float2ll_rz(1e10f) | 10000000000
__double2int_rn(2.5) | 2
__double2float_rn(0.1) | 0.10000000149011612
__int2float_rn(16777217) | 16777216
__int2float_ru(16777217) | 16777218
__uint2float_rz(4294967295u) | 4294967040
__ll2double_rn(1ll << 40) | 2**40
__float_as_int(1.0f) | 0x3f800000
__int_as_float(0x40000000) | 2
__double_as_longlong(1.0) >> 52 | 1023
__longlong_as_double(1023ll << 52) | 1
near(__expf(1.0f), 2.7182818f) | 1
near(__exp10f(2.0f), 100.0f) | 1
near(exp10f(2.0f), 100.0f) | 1
near(__logf(10.0f), 2.3025851f) | 1
near(__log2f(8.0f), 3.0f) | 1
near(__log10f(1000.0f), 3.0f) | 1
near(__sinf(0.5f), 0.47942554f) | 1
near(__cosf(0.5f), 0.87758256f) | 1
near(__tanf(0.5f), 0.54630249f) | 1
near(__powf(2.0f, 10.0f), 1024.0f) | 1
near(__fdividef(1.0f, 4.0f), 0.25f) | 1
near(fdividef(1.0f, 4.0f), 0.25f) | 1
near(rsqrtf(16.0f), 0.25f) | 1
near(rsqrt(16.0), 0.25) | 1
near(rcbrtf(8.0f), 0.5f) | 1
near(sinpif(0.5f), 1.0f) | 1
near(cospif(1.0f), -1.0f) | 1
near(erff(0.5f), 0.52049988f) | 1
near(normcdff(0.0f), 0.5f) | 1
near(norm3df(2.0f, 3.0f, 6.0f), 7.0f) | 1
near(sincos_of(0.5f), 0.47942554f + 0.87758256f) | 1
__saturatef(lane - 1.5f) | min(max(lane - 1.5, 0), 1)
fminf(lane, 3.0f) | min(lane, 3)
max(lane, 7) - min(lane, 7) | abs(lane - 7)
fabsf(-2.0f) + abs(-3) | 5
isinf(CUDART_INF_F) | 1
isnan(CUDART_NAN_F) | 1
make_float4(1, 2, 3, lane).w | lane
make_int2(lane, 5).x + make_uchar4(1, 2, 3, 4).z | lane + 3
make_double2(0.5, lane).y + make_float1(1).x | lane + 1
make_longlong2(1, lane).y + make_char4(1, 2, 3, -4).w | lane - 4
__ballot_sync(~0u, lane % 2) | 0xaaaaaaaa
__any_sync(~0u, lane == 3) | 1
__all_sync(~0u, lane < 32) | 1
__match_any_sync(~0u, lane / 8) | 255 << lane // 8 * 8
matches_all(7) | 0xffffffff
__reduce_add_sync(~0u, lane) | 496
__reduce_max_sync(~0u, lane) - __reduce_min_sync(~0u, -lane) | 62
__reduce_or_sync(~0u, 1u << lane) | 0xffffffff
(__activemask() >> lane) & 1 | 1
__syncthreads_count(lane < 5) | 5
__syncthreads_and(lane < 5) | 0
__syncthreads_or(lane < 5) != 0 | 1
shared_after<unsigned>(atomicDec, 4u, 4u) | 4 - 32 % 5
shared_after<float>(atomicAdd, 0.5f, 1.0f) | 32.5
shared_after<double>(atomicAdd, 0.5, 1.0) | 32.5
shared_after<long long>(atomicMax, -5ll, -4ll) | -4
shared_after(add_by_swaps, 0, lane) | 496
factorial<5>::value + decltype(lane)(0) | 120
dim3(2, 3).x * dim3(2, 3).y * dim3(2, 3).z | 6
__popc(lane - 16) | (lane - 16 & 0xffffffff).bit_count()
__popcll((unsigned long long)lane << 40 | lane) | 2 * lane.bit_count()
__ffs(lane - 16) | (lane - 16 & 16 - lane).bit_length()
__clz(lane - 16) | 32 - (lane - 16 & 0xffffffff).bit_length()
min(lane - 16, 3) + max(lane - 16, -5) | min(lane - 16, 3) + max(lane - 16, -5)
min((long long)lane, 7LL) | min(lane, 7)
fmaxf(lane - 1.5f, -0.5f) | max(lane - 1.5, -0.5)
__uint_as_float(__float_as_uint(lane) ^ 0x80000000u) | -lane
__saturatef(CUDART_NAN_F) | 0
copysignf(1.0f, __saturatef(-0.0f)) | 1
isnan(__fdividef(CUDART_NAN_F, 1.0f)) | 1
isinf(__frcp_rn(-0.0f)) && __frcp_rn(-0.0f) < 0 | 1
isinf(rsqrtf(0.0f)) | 1
int64_t(INT_MAX) + UINT32_MAX | 2**31 - 1 + 2**32 - 1
isfinite(FLT_MAX) && !isfinite(2 * FLT_MAX) | 1
(assert(lane < 32), printf("")) | 0
cudaErrorInvalidValue + 10 * cudaErrorMemoryAllocation | 21
cudaErrorInvalidConfiguration + 10 * cudaErrorLaunchFailure | 7199
cudaErrorNotSupported + 1000 * cudaErrorUnknown + cudaSuccess | 999801
cudaFuncAttributeMaxDynamicSharedMemorySize | 8
cudaFuncAttributePreferredSharedMemoryCarveout | 9
(__threadfence(), __threadfence_block(), __nanosleep(1), 1) | 1
"""
CASES = [tuple(line.rsplit(" | ", 1)) for line in LINES.strip().split("\n")]
# A vector of two or four is aligned to its size, up to 16 bytes; one of three as its numbers.
BYTES = {"float": 4, "double": 8, "int": 4, "uint": 4, "short": 2, "ushort": 2, "uchar": 1}
CASES += [
    (f"sizeof({name}{lanes}) * 100 + alignof({name}{lanes})", f"{size * lanes * 100 + align}")
    for name, size in BYTES.items()
    for lanes, align in ((2, 2 * size), (3, size), (4, min(4 * size, 16)))
]
LINES_TEXT = (
    """
#include <math_constants.h>
__device__ bool near(double a, double b) { return fabs(a - b) <= 1e-5 * (1 + fabs(b)); }
__device__ float sincos_of(float x) {
  float sine, cosine;
  sincosf(x, &sine, &cosine);
  return sine + cosine;
}
__device__ unsigned matches_all(int x) {
  int all;
  unsigned mask = __match_all_sync(~0u, x, &all);
  return all ? mask : 0;
}
__device__ int add_by_swaps(int* address, int value) {
  int old = *(volatile int*)address, assumed;
  do assumed = old, old = atomicCAS(address, assumed, assumed + value);
  while (old != assumed);
  return old;
}
template <class T>
__device__ T shared_after(T (*change)(T*, T), T before, T value) {
  __shared__ T x;
  if (threadIdx.x == 0) x = before;
  __syncthreads();
  change(&x, value);
  __syncthreads();
  return x;
}
template <int n>
struct factorial {
  static constexpr int value = n * factorial<n - 1>::value;
};
template <>
struct factorial<0> {
  static constexpr int value = 1;
};
__global__ void line_kernel(int number, double* out) {
  int lane = threadIdx.x;
  switch (number) {
@@
  }
}
""".replace(
        "@@",
        "\n".join(
            f"    case {number}: out[lane] = ({line}); break;"
            for number, (line, _) in enumerate(CASES)
        ),
    )
    + launcher("line(int number, double* out)", threads="32")
)


programs = Kernels(PROGRAMS_TEXT, "tutorial_programs")
lines = Kernels(LINES_TEXT, "tutorial_lines")


@each_target
def test_each_line_gives_what_a_gpu_gives(target):
    names, found, given = {"math": math, "DOWN": ONE_THIRD_DOWN, "UP": ONE_THIRD_UP}, {}, {}
    for number, (line, value) in enumerate(CASES):
        out = torch.zeros(32, dtype=torch.float64, device=device_of(target))
        lines(target).line(number, out)
        found[line] = out.tolist()
        given[line] = [float(eval(value, names | {"lane": lane})) for lane in range(32)]
    assert found == given


@each_target
@pytest.mark.parametrize("given, name", PROGRAMS, ids=[name for _, name in PROGRAMS])
def test_a_program_gives_what_a_gpu_gives(target, given, name):
    given = torch.tensor([float(number) for number in given.split()])
    out = torch.zeros(len(given), device=device_of(target))
    for _ in range(2):
        getattr(programs(target), name)(out)
        assert out.tolist() == given.tolist()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc here")
@pytest.mark.parametrize("text", [PROGRAMS_TEXT, LINES_TEXT], ids=["programs", "lines"])
def test_nvcc_takes_the_same_text(text, tmp_path):
    (tmp_path / "text.cu").write_text(text)
    names = ("cassert", "cfloat", "climits", "cmath", "cstdint", "cstdio", "cstring")
    headers = [word for name in names for word in ("-include", name)]
    command = ("nvcc", "-std=c++17", "-arch=sm_90", "-O1", "-c", *headers, "text.cu")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


LAUNCHER = 'extern "C" int launcher(cudaStream_t stream) { return 0; }'
# A line that uses the name, at namespace scope, in a kernel or in a launcher.
LEFT_OUT_USES = {
    "cudaMallocPitch": "void f() { float* p; size_t n; cudaMallocPitch(&p, &n, 4, 4); }",
    "cudaTextureObject_t": "__global__ void k(cudaTextureObject_t t) {}",
    "tex2D": "__global__ void k(float* out, int t) { *out = tex2D<float>(t, 0, 0); }",
    "cudaDeviceReset": "void f() { cudaDeviceReset(); }",
    "this_grid": "__global__ void k() { cooperative_groups::this_grid().sync(); }",
    "cudaGraph_t": "cudaGraph_t graph;",
    "__hfma": "__global__ void k(__half* h) { h[0] = __hfma(h[0], h[1], h[2]); }",
    "curand_kernel.h": "#include <curand_kernel.h>",
    "thrust": "#include <thrust/device_vector.h>",
    "cudaOccupancyMaxPotentialBlockSize": (
        "void f(int a, int b) { cudaOccupancyMaxPotentialBlockSize(&a, &b, f, 0, 0); }"
    ),
}


@pytest.mark.parametrize("name, line", LEFT_OUT_USES.items(), ids=LEFT_OUT_USES)
def test_what_is_left_out_is_named_with_the_reason(name, line):
    with pytest.raises(CompileError) as raised:
        build_cuda(f"{LAUNCHER}\n\n{line}\n", target="fast")
    assert str(raised.value) == (
        f"your code, line 3: {name} is not in the course's CPU stand-in: {LEFT_OUT[name]}.\n"
        f"    {line}"
    )


def test_another_name_of_cudas_leads_to_the_page():
    with pytest.raises(
        CompileError, match="cudaWarmUp is not in the course's CPU stand-in; less"
    ):
        build_cuda(LAUNCHER + "void f() { cudaWarmUp(); }", target="fast")
    for ours in ("warm_up", "__half2float"):
        with pytest.raises(CompileError) as raised:
            build_cuda(LAUNCHER + f"void f() {{ {ours}(1); }}", target="fast")
        assert ours in str(raised.value) and "stand-in" not in str(raised.value)


PAGE = (CUDA_ON_CPU / "README.md").read_text()
HAS, NOT_HERE = re.findall(
    r"\n\n(\|.*?\n)\n", PAGE.split("## What it has of CUDA")[1], re.DOTALL
)[:2]


def test_the_page_names_what_is_left_out():
    rows = [re.split(r" \| ", row.strip("| ")) for row in NOT_HERE.split("\n")[2:-1]]
    named = {name: why for names, why in rows for name in re.findall(r"`([^`]+)`", names)}
    assert named == LEFT_OUT


def test_the_page_names_what_is_here():
    """Each name of the page is known to the compiler; each of the headers' is on the page."""
    named = set(re.findall(r"`((?:__)?[A-Za-z]\w+)`", HAS))
    named |= {
        name[:-3] + mode
        for row in HAS.split("\n")
        if row.startswith("| rounding, each also")
        for name in re.findall(r"`(\w+)`", row)
        for mode in ("_rz", "_ru", "_rd")
    }
    keywords = set(re.findall(r"`(\w+)`", HAS.split("\n")[2]))
    elsewhere = {"__shared__", "__noinline__", "cudaLaunchKernel"}  # of rewrite.py
    known = "".join(
        f"#if !defined({name})\nusing ::{name};\n#endif\n"
        for name in sorted(named - elsewhere)
    )
    halves = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    build_cuda(f"{halves}{LAUNCHER}\nnamespace page {{\n{known}}}", target="fast")
    files = (path for path in CUDA_ON_CPU.glob("*.h") if path.name != "hooks.h")
    headers = "".join(path.read_text() for path in files)
    function = r"^(?:inline |\[\[.*?\]\] ?)*\w[\w ]*[ *&](cuda[A-Z]\w+|__[a-z]\w+)\("
    declared = set(re.findall(function, headers, re.MULTILINE))
    declared |= set(re.findall(r"^#define (__[a-z]\w+__)\b", headers, re.MULTILINE)) & keywords
    assert declared - named == {"__attribute__"}
