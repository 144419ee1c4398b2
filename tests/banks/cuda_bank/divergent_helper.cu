// A helper that publishes a value has a barrier in it. Only one warp calls it; the other goes
// on to the barrier of the kernel.
#include <cuda_runtime.h>

__device__ void divergent_helper_publish(float* slot, float value) {
  if (threadIdx.x == 0) { *slot = value; }
  __syncthreads();  // FAULT
}

__global__ void divergent_helper_kernel(const float* x, float* out) {
  __shared__ float slot;
  if (threadIdx.x < 32) { divergent_helper_publish(&slot, x[0]); }
  __syncthreads();  // FAULT
  out[threadIdx.x] = slot;
}

extern "C" int divergent_helper(const float* x, float* out, cudaStream_t stream) {
  divergent_helper_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
