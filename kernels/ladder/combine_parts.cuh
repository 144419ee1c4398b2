#pragma once

#include <cmath>
#include <cstdint>

#include "../paged_params.cuh"
#include "shape.cuh"

// Combines the parts of each row's attention, as combine_result() of lesson 04 does. A row is
// one query head of one sequence.
// Grid: (num_seqs, num_q_heads). head_size threads, one for each number of the row's output.
//   part_o: (num_splits, num_seqs, num_q_heads, head_size), each part already divided by its l
//   part_m, part_l: (num_splits, num_seqs, num_q_heads); a part without a token has
//     o = 0, m = -INFINITY, l = 0
//   out: (num_seqs, num_q_heads, head_size), with zeros if no part has a token
__global__ void combine_kernel(Number* out, const float* part_o, const float* part_m,
                               const float* part_l, int num_splits) {
  // BEGIN SOLUTION 7.5
  int num_rows = gridDim.x * gridDim.y, row = blockIdx.x * gridDim.y + blockIdx.y;
  float m_all = -INFINITY, l_all = 0.0f, o_all = 0.0f;
  for (int split = 0; split < num_splits; ++split)
    m_all = fmaxf(m_all, part_m[split * num_rows + row]);
  for (int split = 0; split < num_splits; ++split) {
    int part = split * num_rows + row;
    float weight = part_l[part] == 0.0f ? 0.0f : __expf(part_m[part] - m_all) * part_l[part];
    l_all += weight;
    o_all += weight * part_o[int64_t(part) * head_size + threadIdx.x];
  }
  out[int64_t(row) * head_size + threadIdx.x] =
      from_float<Number>(l_all == 0.0f ? 0.0f : o_all / l_all);
  // END SOLUTION
}

inline int launch_combine(const PagedAttentionParams& params, const float* part_o,
                          const float* part_m, const float* part_l, int num_splits,
                          cudaStream_t stream) {
  combine_kernel<<<dim3(params.num_seqs, params.num_q_heads), head_size, 0, stream>>>(
      static_cast<Number*>(params.out), part_o, part_m, part_l, num_splits);
  return cudaGetLastError();
}
