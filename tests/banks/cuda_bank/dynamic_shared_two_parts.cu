// Keeps scores and, behind them, halves of values in one piece of dynamic shared memory. The
// launch counts the scores only.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void dynamic_shared_two_parts_kernel(const float* x, float* out) {
  extern __shared__ float numbers[];
  float* scores = numbers;
  __half* values = reinterpret_cast<__half*>(scores + blockDim.x);
  scores[threadIdx.x] = x[threadIdx.x];
  values[threadIdx.x] = __float2half(0.5f * x[threadIdx.x]);  // FAULT
  __syncthreads();
  int other = blockDim.x - 1 - threadIdx.x;
  out[threadIdx.x] = scores[other] * __half2float(values[other]);
}

extern "C" int dynamic_shared_two_parts(const float* x, float* out, int threads,
                                        cudaStream_t stream) {
  dynamic_shared_two_parts_kernel<<<1, threads, threads * sizeof(float), stream>>>(x, out);
  return cudaGetLastError();
}
