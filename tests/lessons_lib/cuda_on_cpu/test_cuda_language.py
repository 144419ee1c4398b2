"""What CUDA adds to C++, against Python's own arithmetic: vectors, intrinsics, atomics,
cooperative groups.
"""

import functools
import itertools
import math
import operator
import subprocess

import pytest
import torch

from lessons_lib import CompileError, KernelError, build_cuda
from lessons_lib.cuda_builds import CUDA_ON_CPU

on_gpu = pytest.param(
    "gpu",
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
)
each_target = pytest.mark.parametrize("target", ["fast", "checked", on_gpu])
VECTORS = {
    f"{name}{lanes}": (size, lanes)
    for name, size in (
        ("float", 4),
        ("double", 8),
        ("int", 4),
        ("uint", 4),
        ("short", 2),
        ("ushort", 2),
        ("uchar", 1),
    )
    for lanes in (2, 3, 4)
}
CONSTANTS = {
    "cudaSuccess": 0,
    "cudaErrorInvalidValue": 1,
    "cudaErrorMemoryAllocation": 2,
    "cudaErrorInvalidConfiguration": 9,
    "cudaErrorLaunchFailure": 719,
    "cudaErrorNotSupported": 801,
    "cudaErrorUnknown": 999,
    "cudaFuncAttributeMaxDynamicSharedMemorySize": 8,
    "cudaFuncAttributePreferredSharedMemoryCarveout": 9,
    "warpSize": 32,
}
REAL = [
    "__fdividef(a, b)",
    "__frcp_rn(a)",
    "__fmaf_rn(a, b, 3.0f)",
    "__saturatef(a)",
    "min(a, b)",
    "max(a, b)",
    "__int_as_float(__float_as_int(a))",
    "__uint_as_float(__float_as_uint(a) ^ 0x80000000u)",
    "rsqrtf(fabsf(a))",
    "exp10f(a)",
    "__expf(a)",
    "__log2f(fabsf(b))",
]
WHOLE = [
    "__popc(a)",
    "__popcll((unsigned long long)(unsigned)a << 32 | (unsigned)b)",
    "__ffs(a)",
    "__clz(a)",
    "min(a, b)",
    "max(a, b)",
    "(int)min((long long)a, 7LL)",
    "__byte_perm(a, b, 0x7504)",
    "__byte_perm(a, b, 0x1623)",
]
SIZES = (1, 2, 4, 8, 16, 32)
NUMBERS = [
    "char",
    "short",
    "int",
    "unsigned",
    "long",
    "unsigned long",
    "long long",
    "unsigned long long",
    "float",
    "double",
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
OPERATIONS = {
    "plus": operator.add,
    "less": min,
    "greater": max,
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
}
ATOMICS = [
    "atomicAdd(x, v)",
    "atomicSub(x, v)",
    "atomicMax(x, v)",
    "atomicMin(x, v)",
    "atomicExch(x, v)",
    "atomicCAS(x, T(6), v)",
    "atomicAnd(x, v)",
    "atomicOr(x, v)",
    "atomicXor(x, v)",
    "atomicInc(x, v)",
]
TEXT = """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void constants_kernel(int* out) {
  int at = 0;
  %s
}
extern "C" int constants(int* out, cudaStream_t stream) {
  constants_kernel<<<1, 1, 0, stream>>>(out);
  return cudaGetLastError();
}
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
__global__ void real_kernel(const float* x, const float* y, float* out) {
  float a = x[threadIdx.x], b = y[threadIdx.x];
  float* mine = out + threadIdx.x * %d;
  %s
}
extern "C" int real(const float* x, const float* y, float* out, int n, cudaStream_t stream) {
  real_kernel<<<1, n, 0, stream>>>(x, y, out);
  return cudaGetLastError();
}
__global__ void whole_kernel(const int* x, const int* y, int* out) {
  int a = x[threadIdx.x], b = y[threadIdx.x];
  int* mine = out + threadIdx.x * %d;
  %s
}
extern "C" int whole(const int* x, const int* y, int* out, int n, cudaStream_t stream) {
  whole_kernel<<<1, n, 0, stream>>>(x, y, out);
  return cudaGetLastError();
}

// One thread: what is returned, and what is then there.
template <class T>
__global__ void atomic_kernel(int which, const T* values, T* out) {
  T* x = out;
  x[0] = values[0], x[1] = 0;
  T v = values[1];
  if (which == 4) out[1] = atomicExch(x, v);
  if (which == 5) out[1] = atomicCAS(x, T(6), v);
  if constexpr (sizeof(T) != 8 || T(-1) > T(0)) {
    if (which == 0) out[1] = atomicAdd(x, v);
  }
  %s
}
__global__ void inc_kernel(const unsigned* values, unsigned* out) {
  out[0] = values[0];
  out[1] = atomicInc(out, values[1]);
}
template <class T> int one(int which, const T* values, T* out, cudaStream_t stream) {
  atomic_kernel<T><<<1, 1, 0, stream>>>(which, values, out);
  return cudaGetLastError();
}
extern "C" int atomic_int32(int which, const int* values, int* out, cudaStream_t stream) {
  return one(which, values, out, stream);
}
extern "C" int atomic_uint32(int which, const unsigned* values, unsigned* out,
                             cudaStream_t stream) {
  if (which < 9) return one(which, values, out, stream);
  inc_kernel<<<1, 1, 0, stream>>>(values, out);
  return cudaGetLastError();
}
extern "C" int atomic_uint64(int which, const unsigned long long* values,
                             unsigned long long* out, cudaStream_t stream) {
  return one(which, values, out, stream);
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
extern "C" int lock(int* lock, int* out, cudaStream_t stream) {
  lock_kernel<<<1, 4, 0, stream>>>(lock, out);
  return cudaGetLastError();
}

__global__ void ranks_kernel(int* out) {
  cg::thread_block block = cg::this_thread_block();
  auto sixteen = cg::tiled_partition<16>(block);
  auto four = cg::tiled_partition<4>(sixteen);
  cg::thread_block_tile<4> any_four = four;
  cg::thread_group all = block, some = cg::tiled_partition(all, 8),
                   part = cg::tiled_partition(some, 8);
  cg::thread_group whole = cg::tiled_partition(cg::thread_group(cg::coalesced_threads()), 4);
  auto alone = cg::this_thread();
  auto here = cg::coalesced_threads();
  unsigned ranks[] = {
      block.thread_rank(), block.num_threads(), block.size(),
      sixteen.thread_rank(), sixteen.size(),
      sixteen.meta_group_rank(), sixteen.meta_group_size(),
      four.thread_rank(), four.num_threads(),
      four.meta_group_rank(), four.meta_group_size(),
      any_four.meta_group_rank(), any_four.meta_group_size(),
      (unsigned)all.thread_rank(), (unsigned)all.size(),
      (unsigned)some.thread_rank(), (unsigned)some.size(),
      (unsigned)part.thread_rank(), (unsigned)part.size(),
      (unsigned)whole.size(), alone.size(), alone.thread_rank(),
      (unsigned)cg::thread_rank(four), (unsigned)cg::group_size(four)};
  int rank = block.thread_rank(), count = sizeof ranks / sizeof ranks[0];
  for (int i = 0; i < count; ++i) out[rank * count + i] = ranks[i];
  int inside = here.thread_rank() < here.size() &&
               here.meta_group_rank() < here.meta_group_size() && here.any(1) &&
               !here.any(0) && here.all(1) && !here.all(0) && here.ballot(1) != 0 &&
               here.ballot(0) == 0 && here.shfl(rank, here.thread_rank()) == rank;
  if (!inside) out[rank * count] = -1;
}
extern "C" int ranks(int* out, int x, int y, int z, cudaStream_t stream) {
  ranks_kernel<<<1, dim3(x, y, z), 0, stream>>>(out);
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
  %s
}
extern "C" int compared(int* out, cudaStream_t stream) {
  compared_kernel<<<1, 1, 0, stream>>>(out);
  return cudaGetLastError();
}

template <unsigned size> __device__ void use_tile(const int* x, int rank, int* out) {
  auto tile = cg::tiled_partition<size>(cg::this_thread_block());
  int value = x[rank];
  out[0] = tile.any(value %% 3 == 0), out[1] = tile.all(value %% 3 == 0),
  out[2] = tile.ballot(value %% 3 == 0);
  %s
}
__global__ void tiles_kernel(const int* x, int* out) {
  int rank = cg::this_thread_block().thread_rank();
  %s
}
extern "C" int tiles(const int* x, int* out, cudaStream_t stream) {
  tiles_kernel<<<1, dim3(4, 8, 2), 0, stream>>>(x, out);
  return cudaGetLastError();
}

// Each thread reads its neighbour's number after a group's barrier.
__global__ void order_kernel(const int* x, int* out, int size, int which) {
  __shared__ int numbers[64];
  int rank = threadIdx.x;
  cg::thread_group block = cg::this_thread_block();
  cg::thread_group group = size < 64 ? cg::tiled_partition(block, size) : block;
  numbers[rank] = x[rank];
  if (which == 0) group.sync();
  if (which == 1) cg::sync(group);
  if (which == 2) cg::sync(cg::coalesced_threads());
  out[rank] = numbers[rank ^ (size - 1)];
}
extern "C" int order(const int* x, int* out, int size, int which, cudaStream_t stream) {
  order_kernel<<<1, 64, 0, stream>>>(x, out, size, which);
  return cudaGetLastError();
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
extern "C" int handed_over(int* x, int* flag, int* out, int which, cudaStream_t stream) {
  handed_over_kernel<<<2, 1, 0, stream>>>(x, flag, out, which);
  return cudaGetLastError();
}
""" % (
    "\n  ".join(
        [f"out[at++] = {name};" for name in CONSTANTS]
        + [f"out[at++] = sizeof({name}), out[at++] = alignof({name});" for name in VECTORS]
    ),
    len(REAL),
    "\n  ".join(f"mine[{number}] = {words};" for number, words in enumerate(REAL)),
    len(WHOLE),
    "\n  ".join(f"mine[{number}] = {words};" for number, words in enumerate(WHOLE)),
    "\n  ".join(
        f"if (which == {number}) out[1] = {ATOMICS[number]};" for number in (1, 2, 3, 6, 7, 8)
    ).replace(
        "if (which == 1) out[1] = atomicSub(x, v);",
        "if constexpr (sizeof(T) == 4) if (which == 1) out[1] = atomicSub(x, v);",
    ),
    "\n  ".join(
        f"out[at++] = Compared<{a}, {b}>::kind;"
        for a, b in itertools.product(NUMBERS, NUMBERS)
    ),
    "\n  ".join(
        f"out[{3 + number}] = cg::reduce(tile, value, cg::{name}<int>());"
        for number, name in enumerate(OPERATIONS)
    ),
    "\n  ".join(
        f"use_tile<{size}>(x, rank, out + ({number} * 64 + rank) * {3 + len(OPERATIONS)});"
        for number, size in enumerate(SIZES)
    ),
)


@functools.cache
def library(target: str):
    return build_cuda(TEXT, target=target, name="language")


def result(target: str, function: str, *arguments, like: torch.Tensor) -> torch.Tensor:
    """What the function writes to `like`, which replaces `...` among the arguments."""
    device = "cuda" if target == "gpu" else "cpu"
    out = like.to(device)
    getattr(library(target), function)(
        *(
            out if one is ... else one.to(device) if isinstance(one, torch.Tensor) else one
            for one in arguments
        )
    )
    return out.cpu()


@each_target
def test_constants_and_vectors_are_as_in_cuda(target):
    """A vector of two or four is aligned to its size, up to 16 bytes; one of three as its
    numbers are.
    """
    out = result(
        target,
        "constants",
        ...,
        like=torch.zeros(len(CONSTANTS) + 2 * len(VECTORS), dtype=torch.int32),
    ).tolist()
    assert dict(zip(CONSTANTS, out, strict=False)) == CONSTANTS
    layouts = dict(
        zip(
            VECTORS,
            (
                itertools.batched(out[len(CONSTANTS) :], 2)
                if hasattr(itertools, "batched")
                else zip(*[iter(out[len(CONSTANTS) :])] * 2, strict=True)
            ),
            strict=True,
        )
    )
    assert layouts == {
        name: (size * lanes, size if lanes == 3 else min(size * lanes, 16))
        for name, (size, lanes) in VECTORS.items()
    }


@each_target
@pytest.mark.parametrize("used", range(4))
def test_each_thread_has_its_place(target, used):
    grid = [2, 3, 4][:used] + [1] * (3 - used)
    block = [5, 2, 3][:used] + [1] * (3 - used)
    shape = (*grid[::-1], *block[::-1])
    found = result(
        target,
        "places",
        ...,
        used,
        2,
        3,
        4,
        5,
        2,
        3,
        like=torch.zeros(*shape, 12, dtype=torch.int32),
    )
    for index in itertools.product(*map(range, shape)):
        assert found[index].tolist() == [*grid, *block, *index[2::-1], *index[:2:-1]]


@each_target
def test_arithmetic_of_floats(target):
    numbers = [0.5, -0.0, 0.0, 1.0, 1.5, -2.0, 3.25, 1e-3, -7.5]
    pairs = [(a, b) for a in numbers for b in (2.0, -3.0, 0.5)]
    x, y = torch.tensor(pairs).unbind(1)
    out = result(
        target,
        "real",
        x.contiguous(),
        y.contiguous(),
        ...,
        len(pairs),
        like=torch.zeros(len(pairs), len(REAL)),
    )
    for (a, b), found in zip(pairs, out.tolist(), strict=True):
        expected = [
            a / b,
            math.copysign(math.inf, a) if a == 0 else 1 / a,
            a * b + 3,
            min(max(a, 0.0), 1.0),
            min(a, b),
            max(a, b),
            a,
            -a,
            math.inf if a == 0 else 1 / math.sqrt(abs(a)),
            10**a,
            math.exp(a),
            math.log2(abs(b)),
        ]
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6), (a, b)
        assert math.copysign(1, found[3]) == 1  # no -0
    nan = result(
        target,
        "real",
        torch.tensor([math.nan]),
        torch.ones(1),
        ...,
        1,
        like=torch.zeros(1, len(REAL)),
    )
    assert nan[0, 3] == 0 and nan[0, [0, 1, 2, 6, 7]].isnan().all()


@each_target
def test_arithmetic_of_whole_numbers(target):
    numbers = [0, 1, 2, 5, 40, -1, -2, 2**31 - 1, -(2**31), 0x00F0_0F00]
    pairs = list(itertools.product(numbers, numbers))
    x, y = torch.tensor(pairs, dtype=torch.int32).unbind(1)
    out = result(
        target,
        "whole",
        x.contiguous(),
        y.contiguous(),
        ...,
        len(pairs),
        like=torch.zeros(len(pairs), len(WHOLE), dtype=torch.int32),
    )
    for (a, b), found in zip(pairs, out.tolist(), strict=True):
        bits, others = a % 2**32, b % 2**32
        both = bits.to_bytes(4, "little") + others.to_bytes(4, "little")
        assert found == [
            bits.bit_count(),
            bits.bit_count() + others.bit_count(),
            (bits & -bits).bit_length(),
            32 - bits.bit_length(),
            min(a, b),
            max(a, b),
            min(a, 7),
            int.from_bytes(bytes(both[i] for i in (4, 0, 5, 7)), "little", signed=True),
            int.from_bytes(bytes(both[i] for i in (3, 2, 6, 1)), "little", signed=True),
        ], (a, b)


@each_target
def test_min_and_max_take_the_pairs_of_types_that_cuda_takes(target):
    kinds = {0: "-", 410: "i", 400: "u", 810: "l", 800: "m", 411: "f", 811: "d"}
    found = result(
        target, "compared", ..., like=torch.zeros(len(NUMBERS) ** 2, dtype=torch.int32)
    ).tolist()
    rows = [
        " ".join(kinds[kind] for kind in found[start : start + len(NUMBERS)])
        for start in range(0, len(found), len(NUMBERS))
    ]
    assert rows == COMPARED.strip().splitlines()


@each_target
def test_common_headers_are_there_unasked(target):
    headers = build_cuda(
        """
        __global__ void headers_kernel(float* out) {
          int64_t large = INT_MAX;
          float lowest = -FLT_MAX, same;
          memcpy(&same, &lowest, sizeof(uint32_t));
          out[0] = large == 2147483647 && same == lowest && isfinite(same) && !isinf(same)
                       ? 1.0f
                       : sqrtf(2.0f);
          assert(out[0] == 1.0f);
          if (out[0] != 1.0f) printf("%d", int(large));
        }
        extern "C" int headers(float* out, cudaStream_t stream) {
          headers_kernel<<<1, 1, 0, stream>>>(out);
          return cudaGetLastError();
        }""",
        target=target,
        name="headers",
    )
    out = torch.zeros(1, device="cuda" if target == "gpu" else "cpu")
    headers.headers(out)
    assert out.item() == 1


@each_target
@pytest.mark.parametrize(
    "body, refused",
    [
        (
            "cg::thread_group a = cg::this_thread_block(); a = cg::this_thread_block();",
            "deleted|inaccessible",
        ),
        (
            "cg::thread_group a = cg::this_thread_block(); x[0] = a.num_threads();",
            "num_threads",
        ),
    ],
)
def test_what_a_gpu_does_not_compile_is_refused(target, body, refused):
    with pytest.raises(CompileError, match=refused):
        build_cuda(
            f"""#include <cooperative_groups.h>
            namespace cg = cooperative_groups;
            __global__ void refused_kernel(int* x) {{ {body} }}
            extern "C" int refused(int* x, cudaStream_t stream) {{
              refused_kernel<<<1, 1, 0, stream>>>(x);
              return cudaGetLastError();
            }}""",
            target=target,
            name="refused",
        )


@each_target
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.uint64])
def test_an_atomic_operation_returns_what_was_there_and_leaves_the_new_value(target, dtype):
    signed, bits = dtype == torch.int32, 64 if dtype == torch.uint64 else 32
    name = str(dtype).removeprefix("torch.")
    for old, value in itertools.product(
        [6, 0, 5, 2**31 - 1] + ([-3] if signed else [2**bits - 2]), repeat=2
    ):
        after = [
            old + value,
            old - value,
            max(old, value),
            min(old, value),
            value,
            value if old == 6 else old,
            old & value,
            old | value,
            old ^ value,
            0 if old >= value else old + 1,
        ]
        for which in range(10 if dtype == torch.uint32 else 9):
            if (which, bits) == (1, 64):
                continue  # CUDA has none
            found = result(
                target,
                f"atomic_{name}",
                which,
                torch.tensor([old, value], dtype=dtype),
                ...,
                like=torch.zeros(2, dtype=dtype),
            ).tolist()
            left = after[which] % 2**bits
            assert found == [left - (left >> 31 << 32) if signed else left, old], (
                ATOMICS[which],
                old,
                value,
            )


@pytest.mark.parametrize("target", ["fast", "checked"])
def test_who_waits_for_a_lock_lets_others_go_on(target):
    """Only over atomicCAS (README.md)."""
    lock = torch.zeros(1, dtype=torch.int32)
    out = torch.zeros(4, dtype=torch.int32)
    library(target).lock(lock, out)
    assert out.tolist() == [5] * 4 and lock.item() == 0


@each_target
@pytest.mark.parametrize("shape", [(64, 1, 1), (4, 4, 4), (5, 3, 3)])
def test_groups_know_their_ranks_and_sizes(target, shape):
    threads = math.prod(shape)
    out = result(
        target, "ranks", ..., *shape, like=torch.zeros(threads, 24, dtype=torch.int32)
    )
    tiles = -(-threads // 16)
    for rank, found in enumerate(out.tolist()):
        # if only the kernel knows a tile's size, it counts real threads
        some = min(8, threads - rank // 8 * 8)
        assert found == [
            rank,
            threads,
            threads,
            rank % 16,
            16,
            rank // 16,
            tiles,
            rank % 4,
            4,
            rank % 16 // 4,
            4,
            rank % 16 // 4,
            4,
            rank,
            threads,
            rank % 8,
            some,
            rank % 8,
            some,
            found[19],
            1,
            0,
            rank % 4,
            4,
        ]
        assert target == "gpu" or found[19] == 1


@each_target
def test_tiles_vote_and_reduce(target):
    x = torch.tensor([(37 * number) % 91 for number in range(64)], dtype=torch.int32)
    x[8:12] = 9
    out = result(
        target,
        "tiles",
        x,
        ...,
        like=torch.zeros(len(SIZES), 64, 3 + len(OPERATIONS), dtype=torch.int32),
    )
    for (number, size), rank in itertools.product(enumerate(SIZES), range(64)):
        values = x[rank // size * size :][:size].tolist()
        ballot = sum(1 << place for place, value in enumerate(values) if value % 3 == 0)
        votes = [
            int(ballot != 0),
            int(ballot == (1 << size) - 1),
            ballot - (ballot >> 31 << 32),
        ]
        assert out[number, rank].tolist() == votes + [
            functools.reduce(one, values) for one in OPERATIONS.values()
        ], (size, rank)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32, 64])
def test_a_groups_barrier_orders_its_threads(size):
    x = torch.arange(64, dtype=torch.int32)
    for which in (0, 1):
        out = torch.zeros(64, dtype=torch.int32)
        library("checked").order(x, out, size, which)
        assert out.tolist() == [rank ^ (size - 1) for rank in range(64)]
    for which in (2, 3):
        with pytest.raises(KernelError) as caught:
            library("checked").order(x, out, size, which)
        assert caught.value.kind in ("race", "missing-syncwarp", "shared-uninitialised")


@pytest.mark.parametrize("size", [0, 3, 5, 24, 33, 48, 65])
def test_a_tile_has_a_power_of_two_of_threads(size):
    """A GPU ends the kernel."""
    with pytest.raises(
        KernelError, match="tiled_partition makes tiles of 1, 2, 4, 8, 16 or 32 threads"
    ) as caught:
        (
            library("checked").order(
                torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32), size, 0
            )
            if size < 64
            else library("checked").order(
                torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32), -1, 0
            )
        )
    assert caught.value.kind == "assertion"


@pytest.mark.parametrize("which, passes", [(0, True), (1, True), (2, False), (3, False)])
def test_a_fence_for_the_device_or_the_system_hands_over_and_one_for_the_block_does_not(
    which, passes
):
    x, flag, out = (torch.zeros(1, dtype=torch.int32) for _ in range(3))
    if passes:
        library("checked").handed_over(x, flag, out, which)
        assert (x.item(), flag.item(), out.item()) == (7, 2, 7)
    else:
        with pytest.raises(KernelError) as caught:
            library("checked").handed_over(x, flag, out, which)
        assert caught.value.kind == "race-between-blocks"


BLOCK = "cooperative_groups::this_thread_block()"


@pytest.mark.parametrize(
    "body, words",
    [
        (f"auto tile = cooperative_groups::tiled_partition<4>({BLOCK}); tile.sync();", ""),
        (
            f"cooperative_groups::tiled_partition<3>({BLOCK});",
            "a tile has 1, 2, 4, 8, 16 or 32 threads",
        ),
        (
            f"cooperative_groups::tiled_partition<64>({BLOCK});",
            "a tile has 1, 2, 4, 8, 16 or 32 threads",
        ),
        (
            f"cooperative_groups::tiled_partition<8>(cooperative_groups::tiled_partition<8>({BLOCK}));",
            "a tile is smaller than",
        ),
        (
            (
                "struct Wide { char all[32]; } wide{}; "
                f"cooperative_groups::tiled_partition<4>({BLOCK}).shfl(wide, 0);"
            ),
            "",
        ),
        (
            (
                "struct Wide { char all[33]; } wide{}; "
                f"cooperative_groups::tiled_partition<4>({BLOCK}).shfl(wide, 0);"
            ),
            "up to 32 bytes",
        ),
        (
            (
                "struct Copied { Copied(const Copied&) {} Copied() {} } copied; "
                f"cooperative_groups::tiled_partition<4>({BLOCK}).shfl(copied, 0);"
            ),
            "up to 32 bytes",
        ),
        ("struct Wide { char all[17]; } wide{}; __shfl_sync(~0u, wide, 0);", "up to 16 bytes"),
        ("cooperative_groups::this_grid();", "it needs a GPU"),
        ("threadIdx.x = 1;", "read-only"),
    ],
)
def test_what_cuda_does_not_have_does_not_compile(body, words):
    text = f"#include <cooperative_groups.h>\n__global__ void k() {{ {body} }}"
    done = subprocess.run(
        [
            "c++",
            "-std=c++17",
            "-fsyntax-only",
            f"-I{CUDA_ON_CPU / 'include'}",
            "-include",
            "cuda_runtime.h",
            "-x",
            "c++",
            "-",
        ],
        input=text,
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == (not words) and (
        words in done.stderr or words == "read-only"
    ), done.stderr
