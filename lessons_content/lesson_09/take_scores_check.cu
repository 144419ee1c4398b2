// Guards, which no lane may change, are before and after a lane's state and its scores.
constexpr int guards = 32;
template <int row_tiles, int key_tiles>
struct GuardedLane {
  float before[guards];
  RowState<row_tiles> state;
  float between[guards];
  float scores[row_tiles][key_tiles][4];
  float behind[guards];
};

// scores, out_weights: (calls, warps, rows, keys). added: (calls, warps, rows, head_size),
// what acc gets after each call but the last. out_m, out_l: (warps, rows, 4), of each lane.
// out_acc: (warps, rows, head_size). out_around: 3 * guards numbers for each thread, what is
// around its own then; at first it is 1e4.
template <int row_tiles, int key_tiles>
__global__ void take_scores_kernel(const float* scores, const float* added, float* out_m,
                                   float* out_weights, float* out_l, float* out_acc,
                                   float* out_around, int num_calls, float factor) {
  constexpr int num_rows = 16 * row_tiles, num_keys = 8 * key_tiles;
  int warp = threadIdx.x / 32, num_warps = blockDim.x / 32, lane = threadIdx.x % 32;
  auto row = [=](int call, int t, int i) {
    return (call * num_warps + warp) * num_rows + 16 * t + 8 * i + lane / 4;
  };
  auto column = [=](int tile, int j) { return 8 * tile + 2 * (lane % 4) + j; };
  GuardedLane<row_tiles, key_tiles> own;
  for (int i = 0; i < guards; ++i) own.before[i] = own.between[i] = own.behind[i] = 1e4f;
  for (int call = 0; call < num_calls; ++call) {
    for (int t = 0; t < row_tiles; ++t) {
      for (int n = 0; n < key_tiles; ++n)
        for (int i = 0; i < 4; ++i)
          own.scores[t][n][i] = scores[row(call, t, i / 2) * num_keys + column(n, i % 2)];
    }
    asm volatile("" : : "r"(&own) : "memory");  // all of it is in memory
    take_scores(own.state, own.scores, factor);
    asm volatile("" : : "r"(&own) : "memory");
    __syncwarp();  // shows that some lanes have left before the shuffles
    for (int t = 0; t < row_tiles; ++t) {
      for (int n = 0; n < key_tiles; ++n)
        for (int i = 0; i < 4; ++i)
          out_weights[row(call, t, i / 2) * num_keys + column(n, i % 2)] = own.scores[t][n][i];
      if (call + 1 == num_calls) continue;
      for (int d = 0; d < head_size / 8; ++d)
        for (int i = 0; i < 4; ++i)
          own.state.acc[t][d][i] += added[row(call, t, i / 2) * head_size + column(d, i % 2)];
    }
  }
  for (int t = 0; t < row_tiles; ++t) {
    for (int i = 0; i < 2; ++i) {
      out_m[row(0, t, i) * 4 + lane % 4] = own.state.m[t][i];
      out_l[row(0, t, i) * 4 + lane % 4] = own.state.l[t][i];
    }
    for (int d = 0; d < head_size / 8; ++d)
      for (int i = 0; i < 4; ++i)
        out_acc[row(0, t, i / 2) * head_size + column(d, i % 2)] = own.state.acc[t][d][i];
  }
  float* around = out_around + threadIdx.x * 3 * guards;
  for (int i = 0; i < guards; ++i) {
    around[i] = own.before[i];
    around[guards + i] = own.between[i];
    around[2 * guards + i] = own.behind[i];
  }
}

extern "C" int take_all(const float* scores, const float* added, float* out_m,
                        float* out_weights, float* out_l, float* out_acc, float* out_around,
                        int num_calls, int num_warps, int row_tiles, int key_tiles,
                        float factor, cudaStream_t stream) {
  auto kernel = take_scores_kernel<2, 8>;
  if (row_tiles == 1)
    kernel = key_tiles == 2 ? take_scores_kernel<1, 2> : take_scores_kernel<1, 4>;
  kernel<<<1, 32 * num_warps, 0, stream>>>(scores, added, out_m, out_weights, out_l, out_acc,
                                           out_around, num_calls, factor);
  return cudaGetLastError();
}
