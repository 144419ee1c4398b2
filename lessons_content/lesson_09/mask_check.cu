// The rows of a block's tile. last_keys: for each row, counted in the sequence.
struct RowsOfCheck {
  const int* last_keys;
  __device__ int last_key(int row) const { return last_keys[row]; }
};

// Numbers that are no scores are before and after a lane's own.
template <int row_tiles, int key_tiles>
struct GuardedScores {
  float before[32];
  float scores[row_tiles][key_tiles][4];
  float behind[32];
};

// scores, out_scores: (warps, rows, keys). first_rows, first_keys: of each warp. out_around:
// 64 numbers for each thread, what is around its scores then; at first it is 1e4.
template <int row_tiles, int key_tiles>
__global__ void mask_kernel(const float* scores, const int* last_keys, const int* first_rows,
                            const int* first_keys, float* out_scores, float* out_around) {
  constexpr int num_rows = 16 * row_tiles, num_keys = 8 * key_tiles;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  auto place = [=](int t, int n, int number) {
    int row = 16 * t + lane / 4 + number / 2 * 8;
    return (warp * num_rows + row) * num_keys + 8 * n + lane % 4 * 2 + number % 2;
  };
  GuardedScores<row_tiles, key_tiles> own;
  for (float& number : own.before) number = 1e4f;
  for (float& number : own.behind) number = 1e4f;
  for (int t = 0; t < row_tiles; ++t) {
    for (int n = 0; n < key_tiles; ++n)
      for (int i = 0; i < 4; ++i) own.scores[t][n][i] = scores[place(t, n, i)];
  }
  RowsOfCheck rows = {last_keys};
  asm volatile("" : : "r"(&own) : "memory");  // all of it is in memory
  mask(own.scores, rows, first_rows[warp], first_keys[warp]);
  asm volatile("" : : "r"(&own) : "memory");
  for (int t = 0; t < row_tiles; ++t) {
    for (int n = 0; n < key_tiles; ++n)
      for (int i = 0; i < 4; ++i) out_scores[place(t, n, i)] = own.scores[t][n][i];
  }
  for (int i = 0; i < 32; ++i) {
    out_around[threadIdx.x * 64 + i] = own.before[i];
    out_around[threadIdx.x * 64 + 32 + i] = own.behind[i];
  }
}

extern "C" int mask_all(const float* scores, const int* last_keys, const int* first_rows,
                        const int* first_keys, float* out_scores, float* out_around,
                        int num_warps, int row_tiles, int key_tiles, cudaStream_t stream) {
  auto kernel = mask_kernel<2, 8>;
  if (row_tiles == 1) kernel = key_tiles == 2 ? mask_kernel<1, 2> : mask_kernel<1, 4>;
  kernel<<<1, 32 * num_warps, 0, stream>>>(scores, last_keys, first_rows, first_keys,
                                           out_scores, out_around);
  return cudaGetLastError();
}
