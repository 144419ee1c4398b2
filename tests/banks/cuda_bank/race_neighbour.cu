// Adds each number to the one after it. The barrier after the fill is missing: most neighbours
// are in the same warp, but thread 31's is not.
#include <cuda_runtime.h>

__global__ void race_neighbour_kernel(const float* x, float* out) {
  __shared__ float tile[96];
  int thread = threadIdx.x;
  tile[thread] = x[thread];                            // FAULT
  float next = thread < 95 ? tile[thread + 1] : 0.0f;  // FAULT
  out[thread] = x[thread] + next;
}

extern "C" int race_neighbour(const float* x, float* out, cudaStream_t stream) {
  race_neighbour_kernel<<<1, 96, 0, stream>>>(x, out);
  return cudaGetLastError();
}
