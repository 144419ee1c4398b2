// Reverses 256 halves, written to shared memory in pairs and read one at a time, without a
// barrier between.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void race_half2_kernel(const __half2* x, __half* out) {
  __shared__ __half2 pairs[128];
  const __half* tile = reinterpret_cast<const __half*>(pairs);
  int thread = threadIdx.x;
  pairs[thread] = x[thread];               // FAULT
  out[thread] = tile[255 - thread];        // FAULT
  out[128 + thread] = tile[127 - thread];  // FAULT
}

extern "C" int race_half2(const __half* x, __half* out, cudaStream_t stream) {
  race_half2_kernel<<<1, 128, 0, stream>>>(reinterpret_cast<const __half2*>(x), out);
  return cudaGetLastError();
}
