// Reverses numbers of two bytes through dynamic shared memory, counting from the end of a tile
// that is only half full.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void shared_uninitialised_halves_kernel(const __half* x, __half* out) {
  extern __shared__ __half halves[];
  int length = 2 * blockDim.x;
  halves[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = halves[length - 1 - threadIdx.x];  // FAULT
}

extern "C" int shared_uninitialised_halves(const __half* x, __half* out, int threads,
                                           cudaStream_t stream) {
  shared_uninitialised_halves_kernel<<<1, threads, 2 * threads * sizeof(__half), stream>>>(
      x, out);
  return cudaGetLastError();
}
