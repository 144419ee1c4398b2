// Softmax of rows of 32 numbers: maximum and sum by shuffles that leave the result in all
// lanes, several rows in one block.
#include <cuda_runtime.h>

template <typename Operation>
__device__ __forceinline__ float right_warp_xor_reduce(float value, Operation operation) {
  for (int distance = 1; distance < 32; distance *= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

struct RightWarpXorMaximum {
  __device__ float operator()(float left, float right) const { return fmaxf(left, right); }
};

struct RightWarpXorSum {
  __device__ float operator()(float left, float right) const { return left + right; }
};

__global__ void right_warp_xor_kernel(const float* x, float* out, int rows) {
  for (int row = threadIdx.y; row < rows; row += blockDim.y) {
    float value = x[row * 32 + threadIdx.x];
    float exponential = __expf(value - right_warp_xor_reduce(value, RightWarpXorMaximum()));
    out[row * 32 + threadIdx.x] =
        exponential / right_warp_xor_reduce(exponential, RightWarpXorSum());
  }
}

extern "C" int right_warp_xor(const float* x, float* out, int rows, cudaStream_t stream) {
  right_warp_xor_kernel<<<1, dim3(32, 3), 0, stream>>>(x, out, rows);
  return cudaGetLastError();
}
