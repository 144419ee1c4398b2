// Each thread takes its neighbour's number, in place. The barrier between reading and writing
// is missing.
__global__ void shift_kernel(const float* a, float* out) {
  __shared__ float tile[128];
  tile[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  tile[threadIdx.x] = tile[(threadIdx.x + 1) % 128];
  out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" int shift(const float* a, float* out, int n, cudaStream_t stream) {
  shift_kernel<<<1, n, 0, stream>>>(a, out);
  return cudaGetLastError();
}
