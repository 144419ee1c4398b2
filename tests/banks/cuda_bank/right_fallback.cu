// Reverses numbers through shared memory if a block may have so much, else straight in global
// memory: being refused is an answer.
#include <cuda_runtime.h>

__global__ void right_fallback_shared(const float* x, float* out, int n) {
  extern __shared__ float numbers[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) numbers[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = numbers[n - 1 - i];
}

__global__ void right_fallback_global(const float* x, float* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = x[n - 1 - i];
}

extern "C" int right_fallback(const float* x, float* out, int n, cudaStream_t stream) {
  int bytes = n * static_cast<int>(sizeof(float));
  if (cudaFuncSetAttribute(right_fallback_shared, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           bytes) == cudaSuccess) {
    right_fallback_shared<<<1, 64, bytes, stream>>>(x, out, n);
  } else {
    cudaGetLastError();  // forgets the refusal
    right_fallback_global<<<1, 64, 0, stream>>>(x, out, n);
  }
  return cudaGetLastError();
}
