// The learner's kernel as rung 6 launches it; the parts come from Python.
extern "C" int combine(PagedAttentionParams params, const float* part_o, const float* part_m,
                       const float* part_l, int num_splits, cudaStream_t stream) {
  return launch_combine(params, part_o, part_m, part_l, num_splits, stream);
}
