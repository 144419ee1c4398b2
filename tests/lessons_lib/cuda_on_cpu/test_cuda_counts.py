"""What checked mode counts, against small kernels that were counted by hand."""

import re

import pytest
import torch

from cuda_text import Kernels, launcher
from lessons_lib.cuda.library import Counts, KernelError

TEXT = """
__global__ void neighbours_kernel(const float* a, float* out) {
  out[threadIdx.x] = a[threadIdx.x];
}
__global__ void strided_kernel(const float* a, float* out) {
  out[threadIdx.x] = a[threadIdx.x * 8];
}
__global__ void wide_kernel(const float* a, float* out) {
  float4 four = reinterpret_cast<const float4*>(a)[threadIdx.x];
  out[threadIdx.x] = four.x + four.y + four.z + four.w;
}
__global__ void broadcast_kernel(const float* a, float* out) { out[threadIdx.x] = a[3]; }
__global__ void shifted_kernel(const float* a, float* out) {
  out[threadIdx.x] = a[threadIdx.x + 1];
}
__global__ void some_kernel(const float* a, float* out) {
  out[threadIdx.x] = threadIdx.x % 2 ? a[threadIdx.x] : 0.0f;
}
__global__ void loop_kernel(const float* a, float* out) {
  float sum = 0.0f;
  for (int i = 0; i < threadIdx.x % 4; ++i) sum += a[i * 64 + threadIdx.x];
  out[threadIdx.x] = sum;
}
__global__ void shared_kernel(const float* a, float* out) {
  __shared__ float own[32];
  own[threadIdx.x] = a[threadIdx.x];
  out[threadIdx.x] = own[threadIdx.x];
}
__global__ void bytes_kernel(const float* a, float* out) {
  out[threadIdx.x] = reinterpret_cast<const char*>(a)[threadIdx.x * 32];
}
struct Large { float numbers[12]; };
__global__ void large_kernel(const float* a, float* out) {
  Large large = reinterpret_cast<const Large*>(a)[threadIdx.x];
  float sum = 0.0f;
  for (float number : large.numbers) sum += number;
  out[threadIdx.x] = sum;
}
"""
NAMES = re.findall(r"(\w+)_kernel", TEXT)
TEXT += "".join(
    launcher(f"{name}(const float* a, float* out, int threads)", "1", "threads", "a, out")
    for name in NAMES
)


def count(function, threads):
    memory = torch.zeros(4096 + 64)
    first = -memory.data_ptr() // 4 % 64  # at a multiple of 256 bytes, as a GPU's tensors are
    with library().count("a") as counts:
        getattr(library(), function)(memory[first:], torch.zeros(threads), threads)
    return counts


@pytest.mark.parametrize(
    "function, threads, bytes_read, instructions, sectors",
    [
        ("neighbours", 32, 128, 1, 4),
        ("neighbours", 70, 280, 3, 9),  # warps of 32, 32 and 6 lanes
        ("strided", 32, 128, 1, 32),
        ("strided", 64, 256, 2, 64),
        ("wide", 32, 512, 1, 16),
        ("broadcast", 64, 256, 2, 2),
        ("shifted", 32, 128, 1, 5),
        ("some", 32, 64, 1, 4),
        ("loop", 32, 4 * 8 * (0 + 1 + 2 + 3), 3, 3 * 4),
        ("shared", 32, 128, 1, 4),  # only the tensor's
        ("bytes", 32, 32, 1, 32),
        ("large", 32, 32 * 48, 3, 32 * 3),  # 48 bytes are three loads of 16
    ],
)
def test_loads_are_counted_by_warp(function, threads, bytes_read, instructions, sectors):
    counts = count(function, threads)
    assert (counts.bytes_read, counts.load_instructions, counts.sectors) == (
        bytes_read,
        instructions,
        sectors,
    )


TEXT += """
__global__ void meet_kernel(const int* a, int* out) {
  __shared__ int numbers[96];
  numbers[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  int sum = numbers[(threadIdx.x + 1) % 96];
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  if (__any_sync(0xffffffff, sum > 0)) __syncwarp();
  __syncthreads();
  out[blockIdx.x * 96 + threadIdx.x] = sum;
}
""" + launcher("meet(const int* a, int* out, int blocks)", "blocks", "96", "a, out")
library = Kernels(TEXT, "counts")
ONES = torch.ones(96, dtype=torch.int32)


def meet(a=ONES, blocks: int = 1):
    library().meet(a, torch.zeros(blocks * 96, dtype=torch.int32), blocks)


def test_meetings_and_barriers_are_counted():
    with library().count("a") as counts:
        meet(blocks=2)
    assert (counts.barriers, counts.warp_meetings) == (2 * 2, 2 * 3 * (5 + 1 + 1))
    assert (counts.bytes_read, counts.load_instructions) == (2 * 96 * 4, 2 * 3)
    assert counts.steps >= 2 * 96 * 6  # each of the threads goes round a loop five times


def test_calls_add_up_and_seeds_do_not_matter():
    totals = []
    for seed in range(3):
        library().options(seed=seed)
        with library().count("a") as counts:
            assert counts == Counts()
            for _ in range(1 + seed):
                meet()
        meet()
        assert all(value % (1 + seed) == 0 for value in vars(counts).values())
        totals.append({name: value // (1 + seed) for name, value in vars(counts).items()})
    library().options(seed=0)
    assert totals[0] == totals[1] == totals[2]


def test_a_call_that_fails_is_counted_to_its_failure_and_the_next_one_from_zero():
    with library().count("a") as counts, pytest.raises(KernelError):
        meet(ONES[:90])
    assert counts.bytes_read == 4 * 90
    with library().count("a") as counts:
        meet()
    assert counts.bytes_read == 4 * 96
