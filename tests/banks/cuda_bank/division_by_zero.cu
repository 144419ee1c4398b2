// The mean of each group of integers. A group may be empty.
#include <cuda_runtime.h>

__global__ void division_by_zero_kernel(const int* sums, const int* counts, int* out, int n) {
  int i = threadIdx.x;
  if (i < n) {
    out[i] = sums[i] / counts[i];  // FAULT
  }
}

extern "C" int division_by_zero(const int* sums, const int* counts, int* out, int n,
                                cudaStream_t stream) {
  division_by_zero_kernel<<<1, 32, 0, stream>>>(sums, counts, out, n);
  return cudaGetLastError();
}
