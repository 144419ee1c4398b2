// q: (head_size,). keys: num_keys rows of head_size numbers, row_stride apart. out: (num_keys,
// group_lanes), what each lane of a group gets for its key. Where there are more groups than
// keys, they come with zeros; a warp without a key goes. Numbers that are no part of the row
// are before and after a lane's part.
struct GuardedQuery {
  float before[16];
  float part[lane_numbers];
  float behind[head_size];
};
struct GuardedKey {
  unsigned before[16];
  WideRow part;
  unsigned behind[16];
};

__global__ void wide_score_kernel(const Number* q, const KvNumber* keys, float* out,
                                  int num_keys, int row_stride, float scale) {
  int token = (blockIdx.x * blockDim.x + threadIdx.x) / group_lanes;
  if ((blockIdx.x * blockDim.x + threadIdx.x / 32 * 32) / group_lanes >= num_keys) return;
  GuardedQuery query;
  GuardedKey key = {{}, {}, {}};
  if (token < num_keys) key.part = load_row(keys + token * row_stride);
  for (int i = 0; i < lane_numbers; ++i) query.part[i] = to_float(q[place(i)]);
  for (float& number : query.before) number = 1e4f;
  for (float& number : query.behind) number = 1e4f;
  // NaN, in each format
  for (int i = 0; i < 16; ++i) key.before[i] = key.behind[i] = 0xffffffff;
  asm volatile("" : : "r"(&query), "r"(&key) : "memory");  // all of it is in memory
  float score = wide_score(query.part, key.part, scale);
  asm volatile("" : : "r"(&score) : "memory");  // the first score is read, too
  // right after the first, as in a loop over the keys
  score = wide_score(query.part, key.part, scale);
  // as the next key in a loop does, it shows that some lanes have left before the shuffles
  __syncwarp();
  if (token < num_keys) out[token * group_lanes + threadIdx.x % group_lanes] = score;
}

extern "C" int wide_scores(const void* q, const void* keys, float* out, int num_keys,
                           int row_stride, float scale, cudaStream_t stream) {
  int threads = 64, groups = threads / group_lanes;
  wide_score_kernel<<<(num_keys + groups - 1) / groups, threads, 0, stream>>>(
      static_cast<const Number*>(q), static_cast<const KvNumber*>(keys), out, num_keys,
      row_stride, scale);
  return cudaGetLastError();
}

// A load of 16 bytes by each lane of a warp, to be counted.
__global__ void one_load_kernel(const uint4* keys, uint4* out) {
  out[threadIdx.x] = keys[threadIdx.x];
}

extern "C" int one_load(const void* keys, void* out, cudaStream_t stream) {
  one_load_kernel<<<1, 32, 0, stream>>>(static_cast<const uint4*>(keys),
                                        static_cast<uint4*>(out));
  return cudaGetLastError();
}
