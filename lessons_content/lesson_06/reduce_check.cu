// values, out_max, out_sum: (num_blocks, rounds, threads). What block_max and block_sum give
// to each thread, in each round.
__global__ void reduce_kernel(const float* values, float* out_max, float* out_sum,
                              int rounds) {
  int first = blockIdx.x * rounds * blockDim.x + threadIdx.x;
  for (int round = 0; round < rounds; ++round) {
    out_max[first + round * blockDim.x] = block_max(values[first + round * blockDim.x]);
  }
  for (int round = 0; round < rounds; ++round) {
    out_sum[first + round * blockDim.x] = block_sum(values[first + round * blockDim.x]);
  }
}

extern "C" int reduce(const float* values, float* out_max, float* out_sum, int blocks,
                      int rounds, int threads, cudaStream_t stream) {
  reduce_kernel<<<blocks, threads, 0, stream>>>(values, out_max, out_sum, rounds);
  return cudaGetLastError();
}
