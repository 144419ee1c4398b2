// Counts the positive numbers of a block. The last warp sets the counter to zero, and nothing
// makes the others wait for that.
#include <cuda_runtime.h>

__global__ void race_late_reset_kernel(const float* x, int* out) {
  __shared__ int counter;
  if (threadIdx.x == 96) {
    counter = 0;  // FAULT
  }
  if (x[threadIdx.x] > 0.0f) {
    atomicAdd(&counter, 1);  // FAULT
  }
  __syncthreads();
  if (threadIdx.x == 0) { out[0] = counter; }
}

extern "C" int race_late_reset(const float* x, int* out, cudaStream_t stream) {
  race_late_reset_kernel<<<1, 128, 0, stream>>>(x, out);
  return cudaGetLastError();
}
