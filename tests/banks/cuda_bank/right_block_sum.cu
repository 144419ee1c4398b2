// The sum of a block of any length: each warp with shuffles, then the warps' sums through
// shared memory. The last warp may be half a warp.
#include <cuda_runtime.h>

__device__ float right_block_sum_add(float value) {
  __shared__ float warp_sums[32];
  int lane = threadIdx.x % 32;
  int warp = threadIdx.x / 32;
  int lanes = min(32, static_cast<int>(blockDim.x) - warp * 32);
  unsigned mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
  for (int distance = lanes / 2; distance > 0; distance /= 2) {  // lanes is a power of two
    value += __shfl_xor_sync(mask, value, distance);
  }
  if (lane == 0) { warp_sums[warp] = value; }
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < (blockDim.x + 31) / 32; i++) { sum += warp_sums[i]; }
  __syncthreads();  // the next call writes warp_sums again
  return sum;
}

__global__ void right_block_sum_kernel(const float* x, float* out) {
  float value = x[blockIdx.x * blockDim.x + threadIdx.x];
  float mean = right_block_sum_add(value) / blockDim.x;
  float variance = right_block_sum_add((value - mean) * (value - mean)) / blockDim.x;
  out[blockIdx.x * blockDim.x + threadIdx.x] = (value - mean) * rsqrtf(variance + 1e-5f);
}

extern "C" int right_block_sum(const float* x, float* out, int blocks, int threads,
                               cudaStream_t stream) {
  right_block_sum_kernel<<<blocks, threads, 0, stream>>>(x, out);
  return cudaGetLastError();
}
