constexpr int numbers_behind = 8;

// A warp, each group of lanes with a state of its own. scores: (rounds, groups, rows_at_once).
// values: (rounds, groups, rows_at_once, head_size). out_m, out_l: (groups, group_lanes);
// out_acc: (groups, head_size). out_behind: what is after each lane's state then; at
// first it is 1e4. NaN is after the rows.
struct GuardedState {
  SoftmaxState state;
  float behind[numbers_behind];
};
struct GuardedRows {
  WideRow rows[rows_at_once];
  unsigned behind[head_size];
};

__global__ void take_in_kernel(const float* scores, const KvNumber* values, float* out_m,
                               float* out_l, float* out_acc, float* out_behind, int rounds) {
  int group = threadIdx.x / group_lanes, groups = blockDim.x / group_lanes;
  GuardedState guarded = {no_tokens(), {}};
  SoftmaxState& state = guarded.state;
  for (float& number : guarded.behind) number = 1e4f;
  for (int round = 0; round < rounds; ++round) {
    float those[rows_at_once];
    GuardedRows guarded_rows;
    WideRow(&rows)[rows_at_once] = guarded_rows.rows;
    for (unsigned& bits : guarded_rows.behind) bits = 0xffffffff;  // NaN, in each format
    for (int i = 0; i < rows_at_once; ++i) {
      int number = (round * groups + group) * rows_at_once + i;
      those[i] = scores[number];
      rows[i] = load_row(values + number * head_size);
    }
    // all of it is in memory
    asm volatile("" : : "r"(&guarded), "r"(&guarded_rows) : "memory");
    take_in(state, those, rows);
    asm volatile("" : : "r"(&guarded) : "memory");
  }
  out_m[threadIdx.x] = state.m;
  out_l[threadIdx.x] = state.l;
  for (int i = 0; i < lane_numbers; ++i) out_acc[group * head_size + place(i)] = state.acc[i];
  for (int i = 0; i < numbers_behind; ++i)
    out_behind[threadIdx.x * numbers_behind + i] = guarded.behind[i];
}

extern "C" int take_in_all(const float* scores, const void* values, float* out_m, float* out_l,
                           float* out_acc, float* out_behind, int rounds,
                           cudaStream_t stream) {
  take_in_kernel<<<1, 32, 0, stream>>>(scores, static_cast<const KvNumber*>(values), out_m,
                                       out_l, out_acc, out_behind, rounds);
  return cudaGetLastError();
}
