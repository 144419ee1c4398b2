// A helper gives one thread's value to all. Called twice, its second write can overtake reads
// of the first call: it needs a barrier at its end.
#include <cuda_runtime.h>

__device__ float race_helper_broadcast(float value, int from) {
  __shared__ float slot;
  if (threadIdx.x == from) {
    slot = value;  // FAULT
  }
  __syncthreads();
  return slot;  // FAULT
}

__global__ void race_helper_kernel(const float* x, float* out) {
  float first = race_helper_broadcast(x[threadIdx.x], 0);
  float last = race_helper_broadcast(x[threadIdx.x], 95);
  out[threadIdx.x] = last - first;
}

extern "C" int race_helper(const float* x, float* out, cudaStream_t stream) {
  race_helper_kernel<<<1, 96, 0, stream>>>(x, out);
  return cudaGetLastError();
}
