// For each row of 32 numbers: are all positive, is any, and which lane has the first. Lanes in
// a branch ask who is there with them.
#include <cuda_runtime.h>

__global__ void right_votes_kernel(const float* x, bool* out_all, bool* out_any,
                                   int* out_first, int* out_company) {
  int place = blockIdx.x * 32 + threadIdx.x;
  bool positive = x[place] > 0.0f;
  out_all[place] = __all_sync(0xffffffff, positive);
  out_any[place] = __any_sync(0xffffffff, positive);
  out_first[place] = __ffs(__ballot_sync(0xffffffff, positive)) - 1;
  unsigned lower = __ballot_sync(0xffffffff, threadIdx.x < 20);
  int company = 0;
  if (threadIdx.x < 20) {
    // the mask names exactly the lanes in this branch
    company = __popc(__ballot_sync(lower, positive));
  }
  out_company[place] = company;
}

extern "C" int right_votes(const float* x, bool* out_all, bool* out_any, int* out_first,
                           int* out_company, int rows, cudaStream_t stream) {
  right_votes_kernel<<<rows, 32, 0, stream>>>(x, out_all, out_any, out_first, out_company);
  return cudaGetLastError();
}
