"""What can be launched, and what launches and CUDA's errors do after one that could not, or
that went wrong.
"""

import ctypes
import os
import signal

import pytest
import torch

from cuda_text import Kernels, each_target, error_of, integers, launcher, on_cpu
from lessons_lib import KernelError, build_cuda, run_isolated

KERNELS = r"""
#include <cstring>
__global__ void count_kernel(int* ran) {
  if (threadIdx.x + threadIdx.y + threadIdx.z + blockIdx.x + blockIdx.y + blockIdx.z == 0)
    ran[0] = 1;
}
extern "C" int launch(int* ran, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e,
                      unsigned f, int bytes, cudaStream_t stream) {
  count_kernel<<<dim3(a, b, c), dim3(d, e, f), bytes, stream>>>(ran);
  return cudaGetLastError();
}
// Bad, then good: what the two functions say after each, as digits; 9 becomes 3.
__device__ __host__ int digit(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? 3 : int(error);
}
extern "C" int ask(int* ran, int* out, cudaStream_t stream) {
  int said = digit(cudaPeekAtLastError());
  count_kernel<<<1, 2000, 0, stream>>>(ran);
  said = said * 10 + digit(cudaPeekAtLastError());
  said = said * 10 + digit(cudaPeekAtLastError());
  said = said * 10 + digit(cudaGetLastError());
  said = said * 10 + digit(cudaGetLastError());
  said = said * 10 + digit(cudaPeekAtLastError());
  count_kernel<<<1, 2, 0, stream>>>(out);
  said = said * 10 + digit(cudaGetLastError());
  return said;
}
extern "C" int give(int code) { return code; }
__global__ void go_on_kernel(int* out) {
  assert(threadIdx.x != 1);
  printf("thread %d goes on\n", threadIdx.x);
  out[0] = 1;
}
// Blocks from `first` on fail, the earlier the later; then another launch writes.
__global__ void fail_kernel(int* work, int first, int n) {
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (block < first) return;
  for (int i = 0; i < (n - block) * 20000; ++i) work[block] += i;
  assert(block < first);
}
__global__ void after_kernel(int* after) { after[0] = 1; }
extern "C" int fail(int* work, int* after, int first, int x, int y, int z,
                    cudaStream_t stream) {
  fail_kernel<<<dim3(x, y, z), 1, 0, stream>>>(work, first, x * y * z);
  int error = cudaDeviceSynchronize();
  after_kernel<<<1, 1, 0, stream>>>(after);
  cudaGetLastError();
  return cudaGetLastError() == error ? error : 0;  // a kernel's own error stays
}
__global__ void large_kernel(int* out, int fault) {
  extern __shared__ int room[];
  assert(!fault);
  room[12 * 1024] = 7;
  out[0] = room[12 * 1024];
}
extern "C" int large(int* out, int attribute, int fault, cudaStream_t stream) {
  if (attribute)
    cudaFuncSetAttribute(large_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 50 * 1024);
  large_kernel<<<1, 1, 50 * 1024, stream>>>(out, fault);
  return cudaGetLastError();
}

// Arrays of odd sizes, each at a multiple of its alignment, and none in another.
__global__ void arrays_kernel(int* out, int bytes) {
  __shared__ char a[3];
  __shared__ double b[2];
  __shared__ char c;
  __shared__ __align__(64) float d[5];
  __shared__ short e[7];
  extern __shared__ int f[];
  char* arrays[] = {a, (char*)b, &c, (char*)d, (char*)e, (char*)f};
  int sizes[] = {3, 16, 1, 20, 14, bytes}, alignments[] = {1, 8, 1, 64, 2, 16};
  for (int i = 0; i < 6; ++i) {
    out[2 * i] = reinterpret_cast<uintptr_t>(arrays[i]) % alignments[i];
    memset(arrays[i], i + 1, sizes[i]);
  }
  for (int i = 0; i < 6; ++i) {
    int others = 0;
    for (int byte = 0; byte < sizes[i]; ++byte) others += arrays[i][byte] != i + 1;
    out[2 * i + 1] = others;
  }
}
extern "C" int arrays(int* out, int bytes, int launches, cudaStream_t stream) {
  for (int i = 0; i < launches; ++i) arrays_kernel<<<1, 1, bytes, stream>>>(out, bytes);
  return cudaGetLastError();
}
template <int count> struct Arrays {
  static __device__ int sum() {
    __shared__ int mine[2];
    mine[1] = count;
    return mine[1] + Arrays<count - 1>::sum();
  }
};
template <> struct Arrays<0> { static __device__ int sum() { return 0; } };
template <int count> __global__ void many_kernel(int* out) { out[0] = Arrays<count>::sum(); }
extern "C" int many(int* out, int more, cudaStream_t stream) {
  if (more) many_kernel<64><<<1, 1, 0, stream>>>(out);
  else many_kernel<63><<<1, 1, 0, stream>>>(out);
  return cudaGetLastError();
}
// Both members are read, but only one may be written.
struct Padded { char small; int large; };
__global__ void members_kernel(int* out, int written) {
  __shared__ Padded one;
  if (written == 0) one.small = 5;
  if (written == 1) one.large = 6;
  out[0] = one.small;  // the small one
  out[1] = one.large;  // the large one
  Padded copy = one;
  out[0] += copy.small;
}
__global__ void work_kernel(volatile int* out, int steps) {
  out[0] = 0;
  for (int step = 0; step < steps; ++step) out[0] += step & 1;
}
// An index that is far out of `one` or `two`.
__global__ void far_kernel(int* out, int which, int index) {
  __shared__ int one[8];
  __shared__ int two[8];
  extern __shared__ int three[];
  one[0] = two[0] = three[0] = 1;
  int* array = which == 0 ? three : which == 1 ? one : two;
  array[index] = 5;
  out[0] = array[index];
}
"""
TEXT = KERNELS + "".join(
    [
        launcher("go_on(int* out)", threads="4"),
        launcher("members(int* out, int written)"),
        launcher("work(int* out, int steps)"),
        launcher("far(int* out, int which, int index)", shared_bytes="32"),
    ]
)


library = Kernels(TEXT, "grid")


@pytest.mark.parametrize("written, words", [(0, "// the large one"), (1, "// the small one")])
def test_a_member_beside_padding_must_be_written(written, words):
    found = error_of(library().members, integers("checked", 2), written)
    assert (found.kind, found.line) == ("shared-uninitialised", library.line(words))


def test_a_loop_that_goes_on_is_not_endless_however_long_it_takes():
    """The watch looks each 0.3 s of a processor; these steps take several looks."""
    out, steps = integers("checked", 1), 30_000_000
    library().options(step_limit=2**40)
    library().work(out, steps)
    library().options()
    assert out.item() == steps // 2


THREADS = "more than 1024 threads in a block"
NO_THREADS, NO_BLOCKS = "a block of no threads", "a grid of no blocks"
BLOCKS = "more than 2147483647, 65535 or 65535 blocks in x, y or z"
KIB = 1024
# Blocks, threads, bytes of shared memory, what is said, and CUDA's code.
LAUNCHES = [
    ((1, 1, 1), (1024, 1, 1), 0, "", 0),
    ((1, 1, 1), (16, 1, 64), 0, "", 0),
    ((1, 65535, 1), (1, 1, 1), 0, "", 0),
    ((1, 1, 65535), (1, 1, 1), 0, "", 0),
    ((2, 3, 4), (2, 3, 4), 4096, "", 0),
    ((1, 1, 1), (1, 1, 1), 48 * KIB, "", 0),
    ((1, 1, 1), (1025, 1, 1), 0, THREADS, 9),
    ((1, 1, 1), (2, 16, 33), 0, THREADS, 9),
    ((1, 1, 1), (2**16, 2**16, 1), 0, THREADS, 9),
    ((1, 1, 1), (2, 1, 65), 0, "more than 64 threads in the block's z direction", 9),
    ((1, 1, 1), (0, 1, 1), 0, NO_THREADS, 9),
    ((1, 1, 1), (4, 4, 0), 0, NO_THREADS, 9),
    ((0, 1, 1), (1, 1, 1), 0, NO_BLOCKS, 9),
    ((3, 3, 0), (1, 1, 1), 0, NO_BLOCKS, 9),
    ((1, 65536, 1), (1, 1, 1), 0, BLOCKS, 9),
    ((1, 1, 65536), (1, 1, 1), 0, BLOCKS, 9),
    ((2**31, 1, 1), (1, 1, 1), 0, BLOCKS, 9),
    ((1, 1, 1), (1, 1, 1), 48 * KIB + 1, "more than 48 KiB of dynamic shared memory, wh", 1),
    ((1, 1, 1), (1, 1, 1), 227 * KIB + 1, "more than 227 KiB of dynamic shared memory", 1),
]


@each_target
@pytest.mark.parametrize("grid, block, shared, words, code", LAUNCHES)
def test_what_a_gpu_refuses_is_refused(target, grid, block, shared, words, code):
    ran = integers(target, 1)
    if not words:
        library(target).launch(ran, *grid, *block, shared)
        assert ran.item() == 1
        return
    found = error_of(library(target).launch, ran, *grid, *block, shared)
    assert ran.item() == 0 and found.kind == "bad-launch"
    if target == "gpu":
        return
    bytes_said = f" and {shared} bytes of dynamic shared memory" if shared else ""
    assert str(found).startswith(f"count_kernel cannot be launched: {words}")
    asked = f"The launch asks for {grid} blocks of {block} threads{bytes_said}."
    assert asked in str(found)
    assert (found.kernel, found.source) == ("count_kernel", "your code")
    assert found.line == library.line("count_kernel<<<dim3(a")
    with library(target).launches() as launches, pytest.raises(KernelError):
        library(target).launch(ran, *grid, *block, shared)
    assert launches.returned == code


@on_cpu
def test_asking_forgets_an_error_and_peeking_does_not(target):
    words = r"ask, .* returned 33300"
    with library(target).launches() as launches, pytest.raises(KernelError, match=words):
        library(target).ask(integers(target, 1), integers(target, 1))
    assert launches.returned == 333000


@on_cpu
@pytest.mark.parametrize(
    "code, words",
    [
        (1, "invalid argument"),
        (2, "out of memory"),
        (8, "unrecognized error code"),
        (9, "invalid configuration argument"),
        (700, "an illegal memory access was encountered"),
        (719, "unspecified launch failure"),
    ],
)
def test_an_error_code_is_said_in_words(target, code, words):
    with pytest.raises(KernelError, match=f" returned {code}: {words}. A launcher") as raised:
        library(target).give(code)
    assert raised.value.kind == "bad-launch"


@on_cpu
@pytest.mark.parametrize(
    "first, grid",
    [(0, (6, 1, 1)), (2, (5, 1, 1)), (3, (1, 2, 3)), (4, (2, 3, 1)), (5, (2, 2, 2))],
)
def test_of_blocks_that_fail_the_first_counts_and_nothing_runs_after_it(target, first, grid):
    for threads in (1, 2, 4):
        work = integers(target, 64)
        after = integers(target, 1)
        library(target).options(os_threads=threads)
        with library(target).launches() as launches, pytest.raises(KernelError) as caught:
            library(target).fail(work, after, first, *grid)
        library(target).options()
        x, y, _ = grid
        assert (caught.value.kind, caught.value.block) == (
            "assertion",
            (first % x, first // x % y, first // x // y),
        )
        assert after.item() == 0 and launches.returned == 719
    library(target).fail(work, after, 10, *grid)
    assert after.item() == 1


@on_cpu
def test_when_a_thread_has_failed_no_other_goes_on(target, capfd):
    with pytest.raises(KernelError, match="assertion"):
        library(target).go_on(integers(target, 1))
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "thread 0 goes on\n"


@on_cpu
@pytest.mark.parametrize("name", ["SIGFPE", "SIGSEGV", "SIGBUS", "SIGVTALRM"])
def test_after_a_launch_signals_have_their_handlers_again(target, name):
    """Those that report what the processor refuses are there only while a kernel runs."""
    number, came = getattr(signal, name), []
    before = signal.signal(number, lambda *_: came.append(name))
    try:
        library(target).launch(integers(target, 1), 2, 1, 1, 4, 1, 1, 0)
        os.kill(os.getpid(), number)
        assert came == [name]
    finally:
        signal.signal(number, signal.SIG_DFL if before is None else before)


@on_cpu
def test_after_a_fault_a_kernel_has_no_more_than_48_kib_again(target):
    """On a GPU everything ends there."""

    def call(*arguments):
        out = integers(target, 1)
        library(target).large(out, *arguments)
        assert out.item() == 7

    call(1, 0), call(0, 0)
    with pytest.raises(KernelError, match="assertion"):
        call(0, 1)
    with pytest.raises(KernelError, match="must allow this kernel first"):
        call(0, 0)
    call(1, 0)
    with pytest.raises(KernelError, match="assertion"):
        call(1, 1)


@on_cpu
def test_shared_arrays_are_apart_and_aligned(target):
    for size in (0, 1, 5, 1000, 40_000):
        out = torch.full((12,), -1, dtype=torch.int32)
        library(target).arrays(out, size, 3)
        assert out.tolist() == [0] * 12, size


@on_cpu
def test_63_shared_arrays_have_room_and_no_more(target):
    out = integers(target, 1)
    library(target).many(out, 0)
    assert out.item() == 63 * 64 // 2
    with pytest.raises(KernelError, match="more than 63 shared variables") as caught:
        library(target).many(out, 1)
    assert caught.value.kind == "bad-launch"
    library(target).many(out, 0)


@pytest.mark.parametrize("which, name", [(0, "three"), (1, "one"), (2, "two")])
@pytest.mark.parametrize("index", [-1, 8, 1000, -1000, 131_071, -131_072])
def test_an_index_far_out_of_a_shared_array_still_tells_whose_it_was(which, name, index):
    """Up to half a MiB to both sides."""
    with pytest.raises(KernelError, match=rf"Thread 0 writes {name}\[{index}\]") as caught:
        library().far(integers("checked", 1), which, index)
    more = name == "three" and index > 0
    kind = "dynamic-shared-too-small" if more else "shared-out-of-bounds"
    assert (caught.value.kind, caught.value.name) == (kind, name)


def test_what_a_kernel_prints_is_out_when_its_call_is_back():
    kernel = (
        '__global__ void say_kernel(int n) { printf("block %d\\n", int(blockIdx.x) + n); }'
    )
    build_cuda(text := kernel + launcher("say(int n)"), target="fast")

    def say():
        build_cuda(text, target="fast").say(1)
        os._exit(0)  # nothing is flushed there

    assert run_isolated(say).printed == "block 1\n"
