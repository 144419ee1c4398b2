// Counts positive numbers: the lanes that happen to be together in the branch elect one of
// them, which adds for all.
#include <cuda_runtime.h>

__global__ void right_active_mask_kernel(const float* x, int* count) {
  if (x[threadIdx.x] <= 0.0f) return;
  unsigned together = __activemask();
  if (threadIdx.x % 32 == __ffs(together) - 1) atomicAdd(count, __popc(together));
}

extern "C" int right_active_mask(const float* x, int* count, cudaStream_t stream) {
  right_active_mask_kernel<<<1, 64, 0, stream>>>(x, count);
  return cudaGetLastError();
}
