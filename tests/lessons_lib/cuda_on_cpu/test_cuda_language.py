"""What CUDA adds to C++, where an expression does not show it (test_cuda_tutorial.py): places
in the grid, types of min and max, atomics, locks, fences, and what does not compile.
"""

import itertools
import operator
import subprocess

import pytest
import torch

from cuda_text import ON_CPU, Kernels, device_of, each_target, error_of, integers, launcher
from lessons_lib.cuda.builds import CUDA_ON_CPU

NUMBERS = [
    *("char", "short", "int", "unsigned", "long", "unsigned long"),
    *("long long", "unsigned long long", "float", "double"),
]
# The type of min and max of two such numbers, row with column, as CUDA 13.0 gave it on an
# H200. A minus means that nvcc finds the call ambiguous.
COMPARED = """
i i i u - - - - - -
i i i u - - - - - -
i i i u - - - - - -
u u u u - - - - - -
- - - - l m - - - -
- - - - m m - - - -
- - - - - - l m - -
- - - - - - m m - -
- - - - - - - - f d
- - - - - - - - d d
"""
TYPES = {"int32": "int", "uint32": "unsigned", "uint64": "unsigned long long"}
# What each leaves. The second operand of atomicCAS is 6.
ATOMICS = {
    "atomicAdd(x, v)": operator.add,
    "atomicSub(x, v)": operator.sub,
    "atomicMax(x, v)": max,
    "atomicMin(x, v)": min,
    "atomicExch(x, v)": lambda old, value: value,
    "atomicCAS(x, T(6), v)": lambda old, value: value if old == 6 else old,
    "atomicAnd(x, v)": operator.and_,
    "atomicOr(x, v)": operator.or_,
    "atomicXor(x, v)": operator.xor,
    "atomicInc(x, v)": lambda old, value: 0 if old >= value else old + 1,
}
NOT_FOR = {"int32": {"atomicInc(x, v)"}, "uint64": {"atomicInc(x, v)", "atomicSub(x, v)"}}
KERNELS = """
__global__ void places_kernel(int* places) {
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int at = (block * blockDim.x * blockDim.y * blockDim.z + thread) * 12;
  const dim3 all[] = {gridDim, blockDim, blockIdx, threadIdx};
  for (dim3 one : all) places[at++] = one.x, places[at++] = one.y, places[at++] = one.z;
}
extern "C" int places(int* places, int used, int a, int b, int c, int d, int e, int f,
                      cudaStream_t stream) {
  if (used == 0) places_kernel<<<dim3(), dim3(), 0, stream>>>(places);
  if (used == 1) places_kernel<<<dim3(a), dim3(d), 0, stream>>>(places);
  if (used == 2) places_kernel<<<dim3(a, b), dim3(d, e), 0, stream>>>(places);
  if (used == 3) places_kernel<<<dim3(a, b, c), dim3(d, e, f), 0, stream>>>(places);
  return cudaGetLastError();
}
template <class A, class B, class = void> struct Compared { static constexpr int kind = 0; };
template <class A, class B>
struct Compared<A, B, decltype(void(min(A(), B())), void(max(A(), B())))> {
  using Result = decltype(min(A(), B()));
  static_assert(sizeof(Result) == sizeof(decltype(max(A(), B()))), "");
  static constexpr int kind = sizeof(Result) * 100 + (static_cast<Result>(-1) < 0) * 10 +
                              (static_cast<Result>(0.5) != 0);
};
__global__ void compared_kernel(int* out) {
  int at = 0;
  COMPARISONS
}
// A lane holds a lock while it waits for another lane, which comes after those that want it.
__global__ void lock_kernel(int* lock, int* out) {
  int lane = threadIdx.x;
  if (lane < 3)
    while (atomicCAS(lock, 0, 1) != 0) { }
  if (lane == 0 || lane == 3) __syncwarp(0x9);
  if (lane < 3) atomicExch(lock, 0);
  out[lane] = 5;
}
__global__ void handed_over_kernel(int* x, int* flag, int* out, int which) {
  if (blockIdx.x == 0) {
    x[0] = 7;
    if (which == 0) __threadfence();
    if (which == 1) __threadfence_system();
    if (which == 2) __threadfence_block();
    atomicAdd(flag, 1);
  } else {
    atomicAdd(flag, 1);
    out[0] = x[0];
  }
}
""".replace(
    "COMPARISONS",
    "\n  ".join(
        f"out[at++] = Compared<{a}, {b}>::kind;"
        for a, b in itertools.product(NUMBERS, NUMBERS)
    ),
)


def atomic(name: str, kind: str) -> str:
    """One thread: what is then there, and what was returned."""
    cases = "\n".join(
        f"  if (which == {number}) out[1] = {call};"
        for number, call in enumerate(ATOMICS)
        if call not in NOT_FOR.get(name, ())
    )
    return f"""
__global__ void atomic_{name}_kernel(int which, const {kind}* values, {kind}* out) {{
  using T = {kind};
  T *x = out, v = values[1];
  x[0] = values[0];
{cases}
}}
""" + launcher(f"atomic_{name}(int which, const {kind}* values, {kind}* out)")


TEXT = (
    KERNELS
    + launcher("compared(int* out)")
    + launcher("lock(int* lock, int* out)", threads="4")
    + launcher("handed_over(int* x, int* flag, int* out, int which)", blocks="2")
    + "".join(map(atomic, TYPES, TYPES.values()))
)


library = Kernels(TEXT, "language")


@each_target
@pytest.mark.parametrize("used", range(4))
def test_each_thread_has_its_place(target, used):
    grid = [2, 3, 4][:used] + [1] * (3 - used)
    block = [5, 2, 3][:used] + [1] * (3 - used)
    shape = (*grid[::-1], *block[::-1])
    found = integers(target, *shape, 12)
    library(target).places(found, used, 2, 3, 4, 5, 2, 3)
    for index in itertools.product(*map(range, shape)):
        assert found[index].tolist() == [*grid, *block, *index[2::-1], *index[:2:-1]]


@each_target
def test_min_and_max_take_the_pairs_of_types_that_cuda_takes(target):
    kinds = {0: "-", 410: "i", 400: "u", 810: "l", 800: "m", 411: "f", 811: "d"}
    found = integers(target, len(NUMBERS), len(NUMBERS))
    library(target).compared(found)
    rows = [" ".join(kinds[kind] for kind in row) for row in found.tolist()]
    assert rows == COMPARED.strip().splitlines()


@each_target
@pytest.mark.parametrize("name", TYPES)
def test_an_atomic_operation_returns_what_was_there_and_leaves_the_new_value(target, name):
    dtype = getattr(torch, name)
    signed, bits = dtype.is_signed, 8 * dtype.itemsize
    for old, value in itertools.product(
        [6, 0, 5, 2**31 - 1, -3 if signed else 2**bits - 2], repeat=2
    ):
        for which, (call, leaves) in enumerate(ATOMICS.items()):
            if call in NOT_FOR.get(name, ()):
                continue
            values = torch.tensor([old, value], dtype=dtype).to(device_of(target))
            out = torch.zeros_like(values)
            getattr(library(target), f"atomic_{name}")(which, values, out)
            left = leaves(old, value) % 2**bits
            left -= left >> 31 << 32 if signed else 0
            assert out.tolist() == [left, old], (call, old, value)


@pytest.mark.parametrize("target", ON_CPU)
def test_who_waits_for_a_lock_lets_others_go_on(target):
    """Only over atomicCAS (README.md)."""
    lock, out = integers(target, 1), integers(target, 4)
    library(target).lock(lock, out)
    assert out.tolist() == [5] * 4 and lock.item() == 0


@pytest.mark.parametrize("which, passes", [(0, True), (1, True), (2, False), (3, False)])
def test_a_fence_for_the_device_or_the_system_hands_over_and_one_for_the_block_does_not(
    which, passes
):
    x, flag, out = (integers("checked", 1) for _ in range(3))
    if passes:
        library().handed_over(x, flag, out, which)
        assert (x.item(), flag.item(), out.item()) == (7, 2, 7)
    else:
        found = error_of(library().handed_over, x, flag, out, which)
        assert found.kind == "race-between-blocks"


STANDARD = ("-std=c++17", f"-I{CUDA_ON_CPU / 'include'}")


@pytest.fixture(scope="module")
def headers(tmp_path_factory):
    """CUDA's headers, which the compiler reads here once and for all."""
    file = tmp_path_factory.mktemp("headers") / "cuda.h"
    file.write_text('#include "cuda_runtime.h"\n#include <cooperative_groups.h>\n')
    precompiled = ["-x", "c++-header", file, "-o", f"{file}.gch"]
    subprocess.run(["c++", *STANDARD, *precompiled], check=True)
    return file


BLOCK = "cooperative_groups::this_thread_block()"
FOUR = f"cooperative_groups::tiled_partition<4>({BLOCK})"


@pytest.mark.parametrize(
    "body, words",
    [
        (f"auto tile = {FOUR}; tile.sync();", ""),
        (
            f"cooperative_groups::tiled_partition<3>({BLOCK});",
            "a tile has 1, 2, 4, 8, 16 or 32",
        ),
        (f"cooperative_groups::tiled_partition<4>({FOUR});", "a tile is smaller than"),
        (f"struct Wide {{ char all[32]; }} wide{{}}; {FOUR}.shfl(wide, 0);", ""),
        (f"struct Wide {{ char all[33]; }} wide{{}}; {FOUR}.shfl(wide, 0);", "up to 32 bytes"),
        (
            f"struct No {{ No(const No&) {{}} No() {{}} }} no; {FOUR}.shfl(no, 0);",
            "up to 32 b",
        ),
        ("struct Wide { char all[17]; } wide{}; __shfl_sync(~0u, wide, 0);", "up to 16 bytes"),
        ("threadIdx.x = 1;", "assign"),
        (f"cooperative_groups::thread_group a = {BLOCK}; a = {BLOCK};", "operator="),
        (f"cooperative_groups::thread_group a = {BLOCK}; a.num_threads();", "num_threads"),
    ],
)
def test_what_cuda_does_not_have_does_not_compile(headers, body, words):
    command = ["c++", *STANDARD, "-fsyntax-only", "-include", headers, "-x", "c++", "-"]
    text = f"__global__ void k() {{ {body} }}"
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert (done.returncode == 0) == (not words) and words in done.stderr, done.stderr
