// Each of the atomics once, on shared memory that one warp has prepared, and a sum in double
// precision on global memory.
#include <cuda_runtime.h>

__global__ void right_atomics_kernel(const int* x, int* out, double* sum) {
  __shared__ int results[7];
  if (threadIdx.x < 7) results[threadIdx.x] = threadIdx.x == 5 ? -1 : 0;
  __syncthreads();
  int value = x[threadIdx.x];
  atomicAdd(&results[0], value);
  atomicSub(&results[1], value);
  atomicMax(&results[2], value);
  atomicMin(&results[3], value);
  atomicExch(&results[4], 7);
  atomicAnd(&results[5], ~value);
  atomicOr(&results[6], value);
  atomicAdd(sum, 0.5 * value);
  __syncthreads();
  if (threadIdx.x < 7) out[threadIdx.x] = results[threadIdx.x];
}

extern "C" int right_atomics(const int* x, int* out, double* sum, cudaStream_t stream) {
  right_atomics_kernel<<<1, 96, 0, stream>>>(x, out, sum);
  return cudaGetLastError();
}
