// Softmax without the maximum, whose kernel works in place. The launcher's caller was promised
// that x stays as it is.
#include <cuda_runtime.h>

__global__ void write_to_input_launcher_kernel(float* x, float* out) {
  x[threadIdx.x] = __expf(x[threadIdx.x]);  // FAULT
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < blockDim.x; i++) { sum += x[i]; }
  out[threadIdx.x] = x[threadIdx.x] / sum;
}

extern "C" int write_to_input_launcher(const float* x, float* out, int n,
                                       cudaStream_t stream) {
  write_to_input_launcher_kernel<<<1, n, 0, stream>>>((float*)x, out);
  return cudaGetLastError();
}
