#pragma once

struct Larger {
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
  __device__ static float of(float a, float b) { return a + b; }
};

// Combines one value from each thread of the block, and returns the result to all of them.
// Every thread of the block calls it. It may be called again right away.
//   blockDim.x: any multiple of 32, at most 1024
template <typename Operation>
__device__ float block_reduce(float value) {
  // BEGIN SOLUTION 6.3
  __shared__ float of_warp[32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value = Operation::of(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warp[0];
  for (int warp = 1; warp < blockDim.x / 32; ++warp)
    value = Operation::of(value, of_warp[warp]);
  __syncthreads();  // the next call writes of_warp again: not before everybody has read it
  return value;
  // END SOLUTION
}

__device__ inline float block_max(float value) { return block_reduce<Larger>(value); }
__device__ inline float block_sum(float value) { return block_reduce<Sum>(value); }
