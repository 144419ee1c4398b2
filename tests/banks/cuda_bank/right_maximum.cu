// Largest numbers without a reduction: atomicMax where an int will do, and a loop over
// atomicCAS, as the programming guide has
// it, for floats. Its first look at the old value need not be atomic: a wrong one only costs
// another round.
#include <cuda_runtime.h>

__device__ float right_maximum_atomic(float* address, float value) {
  int* bits = reinterpret_cast<int*>(address);
  int old = *bits;
  int assumed;
  do {
    assumed = old;
    old = atomicCAS(bits, assumed, __float_as_int(fmaxf(value, __int_as_float(assumed))));
  } while (assumed != old);
  return __int_as_float(old);
}

__global__ void right_maximum_kernel(const float* x, float* largest, int* last_positive,
                                     int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    right_maximum_atomic(largest, x[i]);
    if (x[i] > 0.0f) atomicMax(last_positive, i);
  }
}

extern "C" int right_maximum(const float* x, float* largest, int* last_positive, int n,
                             cudaStream_t stream) {
  right_maximum_kernel<<<(n + 31) / 32, 32, 0, stream>>>(x, largest, last_positive, n);
  return cudaGetLastError();
}
