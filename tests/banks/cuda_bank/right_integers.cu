// Cuts slots into block and offset, and codes numbers as bytes: outputs of 8, 4 and 1 bytes,
// neighbours written by different threads.
#include <cuda_runtime.h>

__global__ void right_integers_kernel(const long long* slots, long long* out_blocks,
                                      int* out_offsets, unsigned char* out_codes,
                                      uchar4* out_fours, int block_size) {
  int i = threadIdx.x;
  out_blocks[i] = slots[i] / block_size;
  out_offsets[i] = static_cast<int>(slots[i] % block_size);
  out_codes[i] = static_cast<unsigned char>(min(255LL, slots[i]));
  if (i % 4 == 0) { out_fours[i / 4] = make_uchar4(i, i + 1, i + 2, i + 3); }
}

extern "C" int right_integers(const long long* slots, long long* out_blocks, int* out_offsets,
                              unsigned char* out_codes, unsigned char* out_fours, int n,
                              int block_size, cudaStream_t stream) {
  right_integers_kernel<<<1, n, 0, stream>>>(slots, out_blocks, out_offsets, out_codes,
                                             reinterpret_cast<uchar4*>(out_fours), block_size);
  return cudaGetLastError();
}
