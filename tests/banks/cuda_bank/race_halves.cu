// Reverses numbers of two bytes through dynamic shared memory, without a barrier after the
// fill.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void race_halves_kernel(const __half* x, __half* out) {
  extern __shared__ __half halves[];
  int thread = threadIdx.x;
  halves[thread] = x[thread];                     // FAULT
  out[thread] = halves[blockDim.x - 1 - thread];  // FAULT
}

extern "C" int race_halves(const __half* x, __half* out, int threads, cudaStream_t stream) {
  race_halves_kernel<<<1, threads, threads * sizeof(__half), stream>>>(x, out);
  return cudaGetLastError();
}
