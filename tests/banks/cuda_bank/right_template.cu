// Copies with a factor, written once for all types and launched three times, the last time for
// what the second left.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

template <typename T>
__device__ float right_template_load(const T* x) {
  return static_cast<float>(*x);
}
template <>
__device__ float right_template_load(const __half* x) {
  return __half2float(*x);
}
template <>
__device__ float right_template_load(const __nv_bfloat16* x) {
  return __bfloat162float(*x);
}

template <typename T, int THREADS>
__global__ void __launch_bounds__(THREADS)
    right_template_kernel(const T* x, float* out, float factor, int n) {
  int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n) { out[i] = factor * right_template_load(x + i); }
}

extern "C" int right_template(const __half* x, const __nv_bfloat16* y, float* out_x,
                              float* out_y, float* out_again, int n, cudaStream_t stream) {
  right_template_kernel<__half, 32><<<(n + 31) / 32, 32, 0, stream>>>(x, out_x, 2.0f, n);
  right_template_kernel<__nv_bfloat16, 64>
      <<<(n + 63) / 64, 64, 0, stream>>>(y, out_y, 3.0f, n);
  right_template_kernel<float, 64>
      <<<(n + 63) / 64, 64, 0, stream>>>(out_y, out_again, 0.5f, n);
  return cudaGetLastError();
}
