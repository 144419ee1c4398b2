// Softmax scores in float and values in half, both in one piece of dynamic shared memory: a
// weighted sum of values.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void right_two_parts_kernel(const float* scores, const __half* values, float* out,
                                       int tokens) {
  extern __shared__ unsigned char bytes[];
  float* weights = reinterpret_cast<float*>(bytes);
  __half* tile = reinterpret_cast<__half*>(weights + tokens);
  for (int token = threadIdx.x; token < tokens; token += blockDim.x) {
    weights[token] = expf(scores[token]);
  }
  for (int i = threadIdx.x; i < tokens * static_cast<int>(blockDim.x); i += blockDim.x) {
    tile[i] = values[i];
  }
  __syncthreads();
  float sum = 0.0f, weighted = 0.0f;
  for (int token = 0; token < tokens; token++) {
    sum += weights[token];
    weighted += weights[token] * __half2float(tile[token * blockDim.x + threadIdx.x]);
  }
  out[threadIdx.x] = __fdividef(weighted, sum);
}

extern "C" int right_two_parts(const float* scores, const __half* values, float* out,
                               int tokens, int head_size, cudaStream_t stream) {
  size_t shared = tokens * sizeof(float) + tokens * head_size * sizeof(__half);
  right_two_parts_kernel<<<1, head_size, shared, stream>>>(scores, values, out, tokens);
  return cudaGetLastError();
}
