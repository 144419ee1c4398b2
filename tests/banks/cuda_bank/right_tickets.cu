// Threads draw row numbers from a counter until none is left: who gets which row differs by
// schedule, the result does not.
#include <cuda_runtime.h>

__global__ void right_tickets_kernel(const float* x, int* next_row, float* out, int rows,
                                     int columns) {
  __shared__ int row;
  while (true) {
    if (threadIdx.x == 0) { row = atomicAdd(next_row, 1); }
    __syncthreads();
    int mine = row;
    __syncthreads();
    if (mine >= rows) { break; }
    for (int column = threadIdx.x; column < columns; column += blockDim.x) {
      out[mine * columns + column] = -x[mine * columns + column];
    }
  }
}

extern "C" int right_tickets(const float* x, int* next_row, float* out, int rows, int columns,
                             cudaStream_t stream) {
  right_tickets_kernel<<<3, 64, 0, stream>>>(x, next_row, out, rows, columns);
  return cudaGetLastError();
}
