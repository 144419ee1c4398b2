// Each block doubles its 64 numbers and one more on the right, which the next block writes
// too, otherwise.
#include <cuda_runtime.h>

__global__ void between_blocks_halo_kernel(const float* x, float* out, int n) {
  int first = blockIdx.x * 64;
  for (int i = threadIdx.x; i < 65; i += 64) {
    if (first + i < n) {
      out[first + i] = x[first + i] * (i < 64 ? 2.0f : 1.0f);  // FAULT
    }
  }
}

extern "C" int between_blocks_halo(const float* x, float* out, int n, cudaStream_t stream) {
  between_blocks_halo_kernel<<<(n + 63) / 64, 64, 0, stream>>>(x, out, n);
  return cudaGetLastError();
}
