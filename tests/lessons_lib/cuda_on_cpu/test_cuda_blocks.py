"""Threads of a block and of several: counting barriers, what shared memory holds at first,
ends of tensors, and locks.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_text import ON_CPU, Kernels, error_of, integers, launcher, on_cpu
from examples import few
from lessons_lib import KernelError

KERNELS = """#include <cooperative_groups.h>

__global__ void count_kernel(const int* predicates, int rounds, int* out) {
  for (int round = 0; round < rounds; ++round) {
    int at = (blockIdx.x * rounds + round) * blockDim.x + threadIdx.x;
    out[3 * at] = __syncthreads_count(predicates[at]);
    out[3 * at + 1] = __syncthreads_or(predicates[at]);
    out[3 * at + 2] = __syncthreads_and(predicates[at]);
  }
}
extern "C" int count_threads(const int* predicates, int rounds, int* out, int blocks,
                             int threads, cudaStream_t stream) {
  count_kernel<<<blocks, threads, 0, stream>>>(predicates, rounds, out);
  return cudaGetLastError();
}
__global__ void order_kernel(int which, const int* x, int* out) {
  __shared__ int numbers[64];
  numbers[threadIdx.x] = x[threadIdx.x];
  if (which == 0) __syncthreads_count(1);
  if (which == 1) __syncthreads_or(1);
  if (which == 2) __syncthreads_and(1);
  if (which == 3) cooperative_groups::this_thread_block().sync();
  out[threadIdx.x] = numbers[63 - threadIdx.x];
}
__global__ void apart_kernel(int which, int* out) {
  if (threadIdx.x < 10) {
    if (which == 0) __syncthreads_count(1);
    if (which == 1) __syncthreads_or(1);
    if (which == 2) __syncthreads_and(1);
    if (which == 3) cooperative_groups::this_thread_block().sync();
  } else if (which < 9) __syncthreads();
  out[threadIdx.x] = 1;
}
// The first block writes, the next ones read: what do they find?
__global__ void left_over_kernel(float* found, int dynamic) {
  __shared__ float fixed[32];
  extern __shared__ float given[];
  float* memory = dynamic ? given : fixed;
  if (blockIdx.x == 0) memory[threadIdx.x] = 5.0f;
  __syncthreads();
  found[blockIdx.x * 32 + threadIdx.x] = memory[threadIdx.x];  // what is left
}
extern "C" int left_over(float* found, int dynamic, int blocks, cudaStream_t stream) {
  left_over_kernel<<<blocks, 32, 32 * sizeof(float), stream>>>(found, dynamic);
  return cudaGetLastError();
}
// Who comes when, in each round.
// With `together`, no block goes on before both have begun, each on a thread of its own.
__global__ void turns_kernel(int* next, int* out, int rounds, int* together) {
  if (together && threadIdx.x == 0)
    for (atomicAdd(together, 1); atomicAdd(together, 0) < 2;) {}
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    int at = blockIdx.x * rounds + round;
    out[at * blockDim.x + atomicAdd(next + at, 1)] = threadIdx.x;
    __syncthreads();
  }
}
extern "C" int turns(int* next, int* out, int rounds, int* together, int blocks, int threads,
                     cudaStream_t stream) {
  turns_kernel<<<blocks, threads, 0, stream>>>(next, out, rounds, together);
  return cudaGetLastError();
}
__global__ void store_kernel(int* out, int value) {
  out[threadIdx.x + blockDim.x * blockIdx.x] = value;
}
// A block of the table, and then two lengths, each of them twice.
__global__ void table_kernel(const float* cache, const int* table, const int* lengths, int seq,
                             float* out) {
  int block = table[seq], length = 0;
  for (int i = 0; i < 4; ++i) length += lengths[i / 2];
  out[0] = cache[block * 4] + length;  // through the table
}
extern "C" int table(const float* cache, const int* table, const int* lengths, int seq,
                     float* out, cudaStream_t stream) {
  table_kernel<<<1, 1, 0, stream>>>(cache, table, lengths, seq, out);
  return cudaGetLastError();
}
// The launcher reads four bytes of its own that begin anywhere.
extern "C" int anywhere(int at, int* out, cudaStream_t stream) {
  alignas(8) volatile char own[] = {1, 0, 0, 0, 2, 0, 0, 0};
  int found = *reinterpret_cast<volatile int*>(own + at);
  store_kernel<<<1, 1, 0, stream>>>(out, found);
  return cudaGetLastError();
}

// Each thread has three bytes of its own.
__global__ void threes_kernel(const unsigned char* x, unsigned char* out) {
  __shared__ uchar3 mine[32];
  int t = threadIdx.x;
  mine[t] = make_uchar3(x[3 * t], x[3 * t + 1], x[3 * t + 2]);
  __syncthreads();
  uchar3 other = mine[31 - t];
  out[3 * t] = other.x, out[3 * t + 1] = other.y, out[3 * t + 2] = other.z;
}
template <typename T>
__global__ void touch(T* x, int64_t at, int write) {
  if (write) x[at] = T(1);  // writes
  else if (x[at] == T(77)) x[0] = T(2);  // reads it
}
// Each thread adds by a compare-and-swap loop; one may look at the sum meanwhile, or before.
__global__ void swap_kernel(float* sum, const float* x, float* out, int look) {
  if (look == 1 && threadIdx.x == blockDim.x - 1) {
    out[0] = sum[0];  // reads only
    return;
  }
  unsigned* bits = reinterpret_cast<unsigned*>(sum);
  unsigned old = *bits, expected;
  do {
    expected = old;
    unsigned desired = __float_as_uint(__uint_as_float(expected) + x[threadIdx.x]);
    old = atomicCAS(bits, expected, desired);  // swaps
  } while (old != expected);
  if (look == 2) {
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum[0];
  }
}
extern "C" int swap(float* sum, const float* x, float* out_seen, int look, int threads,
                    cudaStream_t stream) {
  swap_kernel<<<1, threads, 0, stream>>>(sum, x, out_seen, look);
  return cudaGetLastError();
}
"""
DTYPES = {"uint8": "uint8_t", "bool": "bool", "int16": "int16_t", "int32": "int"}
TEXT = KERNELS + "".join(
    [
        launcher("order(int which, const int* x, int* out)", threads="64"),
        launcher("apart(int which, int* out)", threads="64"),
        launcher("threes(const unsigned char* x, unsigned char* out)", threads="32"),
        *(
            launcher(
                f"touch_{name}({kind}* x, int64_t at, int write)", kernel=f"touch<{kind}>"
            )
            for name, kind in DTYPES.items()
        ),
    ]
)


kernels = Kernels(TEXT, "blocks")


def library(target: str, **options):
    """The library, with these options and no others."""
    kernels(target).options(**options)
    return kernels(target)


@on_cpu
@given(
    st.integers(1, 2),
    st.sampled_from([1, 31, 32, 33, 70]),
    st.integers(1, 3),
    st.integers(0, 2**32),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]),
)
@few(20, drawn_anew=40)
def test_a_barrier_counts_the_threads_of_its_block(
    target, blocks, threads, rounds, chance, seed, share
):
    generator = torch.Generator().manual_seed(chance)
    shape = (blocks, rounds, threads)
    values = torch.tensor([1, 2, -1, 256, -(2**31)], dtype=torch.int32)[
        torch.randint(5, shape, generator=generator)
    ]
    predicates = torch.where(torch.rand(shape, generator=generator) < share, values, 0).int()
    out = torch.full((*shape, 3), -5, dtype=torch.int32)
    library(target, seed=seed).count_threads(predicates, rounds, out, blocks, threads)
    yes = predicates != 0
    expected = torch.stack([yes.sum(2), yes.any(2).int(), yes.all(2).int()], 2).int()
    assert torch.equal(out, expected[:, :, None].expand_as(out))


@on_cpu
def test_threads_take_turns_in_another_order_each_time_if_a_seed_is_given(target):
    def turns(seed, together=None, **options):
        out = torch.full((2, 20, 40), -1, dtype=torch.int32)
        next_ = torch.zeros(2, 20, dtype=torch.int32)
        library(target, seed=seed, **options).turns(next_, out, 20, together, 2, 40)
        return out

    assert torch.equal(turns(0), torch.arange(40, dtype=torch.int32).expand(2, 20, 40))
    orders = torch.cat([turns(1), turns(2)]).flatten(0, 1)
    assert torch.equal(orders.sort()[0], torch.arange(40).expand(80, 40))
    assert len(orders.unique(dim=0)) == 80  # no block and no seed repeats another's
    for place in range(40):  # and anyone may come at any time
        assert len(orders[:, place].unique()) > 20
    if target == "fast":  # the same, whichever thread of the system a block runs on
        together = torch.zeros(1, dtype=torch.int32)
        assert torch.equal(turns(1, together, os_threads=2), turns(1, os_threads=1))


@on_cpu
def test_three_bytes_beside_others_are_not_the_others(target):
    x = torch.randint(0, 256, (32, 3), dtype=torch.uint8)
    out = torch.zeros_like(x)
    library(target, seed=3).threes(x.flatten(), out)
    assert torch.equal(out, x.flip(0))


def test_a_block_of_the_table_is_remembered_however_often_a_number_is_read():
    cache, out = torch.zeros(3, 4), torch.zeros(1)
    lengths = torch.tensor([2, 3], dtype=torch.int32)
    table = lengths[:, None].clone()  # (num_seqs, max_blocks_per_seq)
    library("checked").table(cache, table, lengths, 0, out)
    assert out == 10
    found = error_of(library("checked").table, cache, table, lengths, 1, out)
    assert (found.kind, found.line) == ("block-table", kernels.line("// through the table"))
    assert "table[1, 0]" in str(found)


@pytest.mark.parametrize("at, found", [(0, 1), (1, 2 << 24), (4, 2)])
def test_what_a_launcher_reads_of_its_own_may_begin_anywhere(at, found):
    out = torch.zeros(1, dtype=torch.int32)
    library("checked").anywhere(at, out)
    assert out == found


BARRIERS = ["__syncthreads_count", "__syncthreads_or", "__syncthreads_and", "block.sync"]


@pytest.mark.parametrize("which", range(4))
def test_each_of_them_is_a_barrier(which):
    x = torch.arange(64, dtype=torch.int32)
    for seed in range(4):
        checked, out = library("checked", seed=seed), integers("checked", 64)
        checked.order(which, x, out)
        assert torch.equal(out, x.flip(0))
        with pytest.raises(KernelError, match="no __syncthreads"):
            checked.order(9, x, out)


@on_cpu
@pytest.mark.parametrize("which, name", list(enumerate(BARRIERS)))
def test_who_waits_at_another_barrier_is_told_which(target, which, name):
    with pytest.raises(KernelError, match=rf"come to the same {name}\(\)\.") as caught:
        library(target).apart(which, integers(target, 64))
    assert caught.value.kind == "divergent-barrier"
    words = f"Thread 0 waits at one {name}() and thread 10 at __syncthreads()."
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("dynamic", [0, 1])
def test_a_block_never_sees_what_the_one_before_left_in_shared_memory(dynamic):
    """On a GPU it may, by chance.

    In fast mode it reads NaNs. Checked mode names the early reader.
    """
    for threads in (1, 1, 2, 2):  # nor what the launch before left
        found = torch.zeros(3, 32)
        library("fast", os_threads=threads).left_over(found, dynamic, 3)
        assert found[0].eq(5).all() and found[1:].isnan().all()
    error = error_of(library("checked").left_over, torch.zeros(3, 32), dynamic, 3)
    assert error.kind == "shared-uninitialised" and error.block == (1, 0, 0)
    assert error.line == kernels.line("// what is left") and error.name == (
        "given" if dynamic else "fixed"
    )


@pytest.mark.parametrize("name", DTYPES)
@given(st.integers(1, 70), st.integers(0, 70), st.integers(-1, 80), st.booleans())
@settings(max_examples=40)
def test_a_tensor_ends_at_its_last_element_and_begins_at_its_first(
    name, length, offset, past, write
):
    """Wherever it lies in memory."""
    whole = torch.zeros(200, dtype=getattr(torch, name))
    x, touch = whole[offset : offset + length], getattr(library("checked"), f"touch_{name}")
    for at in (0, length - 1):
        touch(x, at, write)
        assert whole.nonzero().tolist() == ([[offset + at]] if write else [])
        whole.zero_()
    at = past if past < 0 else length + past
    found = error_of(touch, x, at, write)
    assert found.kind == "out-of-bounds"
    assert found.line == kernels.line("// writes" if write else "// reads it")
    words = f"{'writes' if write else 'reads'} x[{at}], outside of the tensor: x has the shape"
    assert str(found).startswith(f"Thread 0 {words} ({length},).")
    assert not whole.any()


@pytest.mark.parametrize("seed", range(4))
def test_a_loop_over_compare_and_swap_may_look_before_it_swaps_and_no_other_thread(seed):
    """The look is no atomic operation, but a wrong one only costs another round."""

    def swap(target, look, threads):
        total, seen = torch.zeros(1), torch.full((1,), -5.0)
        x = torch.arange(threads, dtype=torch.float32)
        library(target, seed=seed).swap(total, x, seen, look, threads)
        return total.item(), seen.item()

    for target in ON_CPU:
        assert swap(target, 2, 64) == (63 * 32, 63 * 32)
    for threads in (2, 32, 33, 64):  # the reader is the last thread, alone in its warp or not
        found = error_of(swap, "checked", 1, threads)
        kinds = ["missing-syncwarp"] if threads <= 32 else ["race", "missing-syncwarp"]
        assert found.kind in kinds and found.name == "sum", found
        assert found.line in (kernels.line("// reads only"), kernels.line("// swaps"))
