// The dot product of each row with a query, loaded as float4 and half2. The query waits in
// shared memory, aligned to 16 bytes.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void right_vector_loads_kernel(const float* query, const __half* keys, float* out,
                                          int rows) {
  __shared__ __align__(16) float shared_query[64];
  for (int i = threadIdx.x; i < 16; i += blockDim.x) {
    reinterpret_cast<float4*>(shared_query)[i] = reinterpret_cast<const float4*>(query)[i];
  }
  __syncthreads();
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    const __half2* key = reinterpret_cast<const __half2*>(keys + row * 64);
    float sum = 0.0f;
    for (int pair = 0; pair < 32; pair++) {
      float2 both = __half22float2(key[pair]);
      sum += shared_query[2 * pair] * both.x + shared_query[2 * pair + 1] * both.y;
    }
    out[row] = sum;
  }
}

extern "C" int right_vector_loads(const float* query, const __half* keys, float* out, int rows,
                                  cudaStream_t stream) {
  right_vector_loads_kernel<<<1, 64, 0, stream>>>(query, keys, out, rows);
  return cudaGetLastError();
}
