// A warp, each group of lanes with a state of its own. scores: (rounds, groups, rows_at_once). values: (rounds, groups,
// rows_at_once, head_size). out_m, out_l: (groups, group_lanes); out_acc: (groups, head_size).
__global__ void take_in_kernel(const float* scores, const KvNumber* values, float* out_m, float* out_l, float* out_acc,
                               int rounds) {
  int group = threadIdx.x / group_lanes, groups = blockDim.x / group_lanes;
  SoftmaxState state = no_tokens();
  for (int round = 0; round < rounds; ++round) {
    float those[rows_at_once];
    WideRow rows[rows_at_once];
    for (int i = 0; i < rows_at_once; ++i) {
      int number = (round * groups + group) * rows_at_once + i;
      those[i] = scores[number];
      rows[i] = load_row(values + number * head_size);
    }
    take_in(state, those, rows);
  }
  out_m[threadIdx.x] = state.m;
  out_l[threadIdx.x] = state.l;
  for (int i = 0; i < lane_numbers; ++i) out_acc[group * head_size + place(i)] = state.acc[i];
}

extern "C" int take_in_all(const float* scores, const void* values, float* out_m, float* out_l, float* out_acc, int rounds,
                           cudaStream_t stream) {
  take_in_kernel<<<1, 32, 0, stream>>>(scores, static_cast<const KvNumber*>(values), out_m, out_l, out_acc, rounds);
  return cudaGetLastError();
}
