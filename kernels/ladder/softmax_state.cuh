#pragma once

#include <cmath>

#include "wide_row.cuh"

// A lane's state after some of the tokens, like SoftmaxState of lesson 03. The lanes of a
// group have the same m and l. Each lane has its own part of acc.
struct SoftmaxState {
  float m;                  // the largest score so far, -INFINITY before the first token
  float l;                  // the sum of exp(score - m)
  float acc[lane_numbers];  // the sum of exp(score - m) * value
};

__device__ inline SoftmaxState no_tokens() { return {-INFINITY, 0.0f, {}}; }

// Takes in more tokens: their scores, and the lane's parts of their values. A token that does
// not exist has the score -INFINITY, and zeros for a value. It may be that none of the tokens
// exists.
__device__ inline void take_in(SoftmaxState& state, const float (&scores)[rows_at_once],
                               const WideRow (&values)[rows_at_once]) {
  // BEGIN SOLUTION 7.3
  float m = state.m;
  for (float score : scores) m = fmaxf(m, score);
  if (m == -INFINITY) return;
  float rescale = __expf(state.m - m);
  state.m = m;
  state.l *= rescale;
  for (float& sum : state.acc) sum *= rescale;
#pragma unroll
  for (int token = 0; token < rows_at_once; ++token) {
    float weight = __expf(scores[token] - m);
    state.l += weight;
    for (int i = 0; i < lane_numbers; ++i) state.acc[i] += weight * number(values[token], i);
  }
  // END SOLUTION
}
