// Remembers where the largest number stands, but each thread whose number reaches the maximum
// writes its own place.
#include <cuda_runtime.h>

__global__ void race_same_place_kernel(const float* x, float maximum, int* out) {
  __shared__ int place;
  if (threadIdx.x == 0) { place = -1; }
  __syncthreads();
  if (x[threadIdx.x] >= maximum) {
    place = threadIdx.x;  // FAULT
  }
  __syncthreads();
  out[threadIdx.x] = place;
}

extern "C" int race_same_place(const float* x, float maximum, int* out, cudaStream_t stream) {
  race_same_place_kernel<<<1, 128, 0, stream>>>(x, maximum, out);
  return cudaGetLastError();
}
