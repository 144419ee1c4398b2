// Thread 0 waits until all threads have counted themselves. They do that after a barrier, at
// which they wait for thread 0.
#include <cuda_runtime.h>

__global__ void no_end_wait_kernel(const float* x, float* out) {
  __shared__ int arrived;
  if (threadIdx.x == 0) arrived = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    while (atomicAdd(&arrived, 0) < static_cast<int>(blockDim.x)) {  // FAULT
    }
  }
  __syncthreads();
  if (threadIdx.x > 0) atomicAdd(&arrived, 1);
  out[threadIdx.x] = x[threadIdx.x];
}

extern "C" int no_end_wait(const float* x, float* out, cudaStream_t stream) {
  no_end_wait_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
