"""What launchers ask for: each launch is written down, one can be made to fail, and a kernel's
attribute is its own.
"""

import pytest
import torch

from cuda_text import ON_CPU
from lessons_lib import KernelError, build_cuda

TEXT = r"""
template <typename T>
__global__ void fill(float* out, int n, T value) {
  extern __shared__ float room[];
  if (threadIdx.x < n) room[threadIdx.x] = value;
  if (threadIdx.x < n && blockIdx.x + blockIdx.z == 0) out[threadIdx.x] = room[threadIdx.x];
}
__global__ void overloaded(float* out, int value) { out[threadIdx.x] = value; }
__global__ void overloaded(float* out, float value) { out[threadIdx.x] = value; }

extern "C" {
int twice(float* out, int n, int bytes, cudaStream_t stream) {
  fill<float><<<dim3(2, 1, 3), dim3(n, 1, 1), bytes, stream>>>(out, n, 1.0f);
  cudaStream_t other = stream;
  fill<int><<<1, n, bytes, other>>>(out, n, 2);
  return cudaGetLastError();
}
int by_function(float* out, int n, int bytes, cudaStream_t stream) {
  int none = 0;
  float value = 1.0f;
  void* arguments[] = {&out, &none, &value};
  if (cudaError_t error = cudaLaunchKernel((void*)fill<float>, dim3(1, 2), n, arguments))
    return error;
  overloaded<<<1, n, 0, stream>>>(out, 5);  // an output has to be written
  return cudaLaunchKernel((void*)fill<float>, 1, n, arguments, bytes, stream);
}
int swallows(float* out, int n, cudaStream_t stream) {
  fill<float><<<1, n, 4 * n, stream>>>(out, n, 1.0f);
  return 0;
}
int asks_too_early(float* out, int n, cudaStream_t stream) {
  cudaError_t error = cudaGetLastError();
  fill<float><<<1, n, 4 * n>>>(out, n, 1.0f);
  return error;
}
int synchronises(float* out, int n, cudaStream_t stream) {
  fill<float><<<1, n, 4 * n, stream>>>(out, n, 1.0f);
  return cudaDeviceSynchronize();
}
int tries_again(float* out, int n, int first, cudaStream_t stream) {
  fill<float><<<1, first, 4 * n, stream>>>(out, n, 1.0f);
  if (cudaGetLastError() != cudaSuccess) fill<float><<<1, n, 4 * n, stream>>>(out, n, 3.0f);
  return cudaGetLastError();
}
int tries_again_unasked(float* out, int n, int first, cudaStream_t stream) {
  fill<float><<<1, first, 4 * n, stream>>>(out, n, 1.0f);
  fill<float><<<1, n, 4 * n, stream>>>(out, n, 3.0f);
  return 0;
}
int asks_for_float(float* out, int n, bool whole, int bytes, cudaStream_t stream) {
  cudaFuncSetAttribute((const void*)fill<float>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       bytes);
  auto kernel = fill<float>;
  if (whole) fill<int><<<1, n, bytes, stream>>>(out, n, 2);
  else kernel<<<1, n, bytes, stream>>>(out, n, 2.0f);
  return cudaGetLastError();
}
int deduced(float* out, int n, int bytes, cudaStream_t stream) {
  cudaFuncSetAttribute(fill<int>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  fill<<<1, n, bytes, stream>>>(out, n, 4);
  overloaded<<<1, n, 0, stream>>>(out, 5);
  return cudaGetLastError();
}
}
"""
KIB = 1024


@pytest.fixture(params=ON_CPU)
def library(request):
    return build_cuda(TEXT, target=request.param)


def filled(call, *arguments):
    out = torch.zeros(4)
    call(out, 4, *arguments)
    return out.tolist()


def shown(launches) -> list[tuple]:
    return [
        (one.kernel, one.grid, one.block, one.shared_bytes, one.stream) for one in launches
    ]


def test_each_launch_is_written_down(library):
    with library.launches(stream=77) as launches:
        filled(library.twice, 16)
        assert shown(launches) == [
            ("fill<float>", (2, 1, 3), (4, 1, 1), 16, 77),
            ("fill<int>", (1, 1, 1), (4, 1, 1), 16, 77),
        ]
        assert launches.returned == 0 and launches[0].function != launches[1].function
        filled(library.swallows)
    assert len(launches) == 3 and launches[2].function == launches[0].function
    filled(library.swallows)
    assert len(launches) == 3


def test_a_launch_by_function_has_no_bytes_and_the_usual_stream_unless_it_says_so(library):
    with library.launches(stream=77) as launches:
        filled(library.by_function, 12)
    assert shown(launches) == [
        ("fill<float>", (1, 2, 1), (4, 1, 1), 0, 0),
        ("overloaded", (1, 1, 1), (4, 1, 1), 0, 77),
        ("fill<float>", (1, 1, 1), (4, 1, 1), 12, 77),
    ]


@pytest.mark.parametrize(
    "launcher, arguments, returned, ran",
    [
        ("swallows", (), 0, 1),
        ("asks_too_early", (), 0, 1),
        # it says how kernels went, and not whether they could begin
        ("synchronises", (), 0, 1),
        ("twice", (16,), 9, 2),
    ],
)
def test_what_a_launcher_makes_of_a_launch_that_fails(
    library, launcher, arguments, returned, ran
):
    with library.launches(failing=1) as launches:
        with pytest.raises(KernelError, match="made to fail") as caught:
            filled(getattr(library, launcher), *arguments)
    assert caught.value.kind == "bad-launch"
    assert (launches.returned, len(launches)) == (returned, ran)


def test_the_launch_that_fails_is_counted_in_each_call(library):
    with library.launches(failing=2) as launches:
        filled(library.swallows), filled(library.swallows)
        with pytest.raises(KernelError, match="made to fail"):
            filled(library.twice, 16)
    assert len(launches) == 4
    with library.launches(failing=3) as launches:  # there is no third one
        filled(library.twice, 16)
    assert launches.returned == 0


def test_a_launcher_may_ask_and_try_another_way(library):
    assert filled(library.tries_again, 2048) == [3, 3, 3, 3]
    with library.launches(failing=1) as launches:
        assert filled(library.tries_again, 4) == [3, 3, 3, 3]
    assert launches.returned == 0
    with pytest.raises(KernelError, match="more than 1024 threads"):
        filled(library.tries_again_unasked, 2048)


def test_more_shared_memory_is_allowed_to_one_kernel_alone(library):
    with pytest.raises(KernelError, match="must allow this kernel first"):
        filled(library.asks_for_float, True, 50 * KIB)
    assert filled(library.asks_for_float, False, 50 * KIB) == [2, 2, 2, 2]
    with pytest.raises(KernelError, match="must allow this kernel first"):
        filled(library.asks_for_float, True, 50 * KIB)


def test_a_kernel_that_its_arguments_choose_has_what_any_kernel_was_allowed(library):
    assert filled(library.deduced, 50 * KIB) == [5, 5, 5, 5]


def test_the_number_of_a_stream_reaches_only_what_runs_inside(library):
    """A launch without the stream that its function is given has the usual one, 0."""
    with library.launches() as usual:
        with library.launches(stream=5) as outer:
            with library.launches(stream=6) as inner:
                filled(library.swallows), filled(library.asks_too_early)
            filled(library.swallows)
        filled(library.swallows)
    streams = [[each.stream for each in launches] for launches in (inner, outer, usual)]
    assert streams == [[6, 0], [5], [0]]
