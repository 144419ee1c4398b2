// Gathers the positive numbers at the front. Two threads can take the same free place, because
// they read the count before either has raised it.
#include <cuda_runtime.h>

__global__ void non_atomic_append_kernel(const float* x, float* kept, int* count) {
  if (x[threadIdx.x] > 0.0f) {
    int place = *count;  // FAULT
    *count = place + 1;  // FAULT
    kept[place] = x[threadIdx.x];
  }
}

extern "C" int non_atomic_append(const float* x, float* kept, int* count,
                                 cudaStream_t stream) {
  non_atomic_append_kernel<<<1, 64, 0, stream>>>(x, kept, count);
  return cudaGetLastError();
}
