// q: (head_size,). keys: num_keys rows of head_size numbers, row_stride apart. out: (num_keys, group_lanes), what each lane
// of a group gets for its key. Where there are more groups than keys, they come without one.
__global__ void wide_score_kernel(const Number* q, const KvNumber* keys, float* out, int num_keys, int row_stride,
                                  float scale) {
  int token = (blockIdx.x * blockDim.x + threadIdx.x) / group_lanes;
  float query[lane_numbers];
  for (int i = 0; i < lane_numbers; ++i) query[i] = to_float(q[place(i)]);
  WideRow key = {};
  if (token < num_keys) key = load_row(keys + token * row_stride);
  float score = wide_score(query, key, scale);
  if (token < num_keys) out[token * group_lanes + threadIdx.x % group_lanes] = score;
}

extern "C" int wide_scores(const void* q, const void* keys, float* out, int num_keys, int row_stride, float scale,
                           cudaStream_t stream) {
  int threads = 64, groups = threads / group_lanes;
  wide_score_kernel<<<(num_keys + groups - 1) / groups, threads, 0, stream>>>(
      static_cast<const Number*>(q), static_cast<const KvNumber*>(keys), out, num_keys, row_stride, scale);
  return cudaGetLastError();
}
