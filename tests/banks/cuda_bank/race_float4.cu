// Copies 256 numbers, written to shared memory four at a time and read one at a time, without
// a barrier between.
#include <cuda_runtime.h>

__global__ void race_float4_kernel(const float* x, float* out) {
  __shared__ float4 tile[64];
  int thread = threadIdx.x;
  tile[thread] = reinterpret_cast<const float4*>(x)[thread];  // FAULT
  const float* numbers = reinterpret_cast<const float*>(tile);
  for (int i = thread; i < 256; i += 64) {
    out[i] = numbers[i];  // FAULT
  }
}

extern "C" int race_float4(const float* x, float* out, cudaStream_t stream) {
  race_float4_kernel<<<1, 64, 0, stream>>>(x, out);
  return cudaGetLastError();
}
