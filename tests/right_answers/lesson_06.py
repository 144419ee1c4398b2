"""Lesson 06, exercises 6.1 to 6.6: kernels. (6.7 and 6.8 are in lesson_06_hunt.py.)"""

from lessons_lib.inline import read_kernel

# 6.1

LAUNCH_ADD = """
extern "C" int add(const float* a, const float* b, float* out, int n, cudaStream_t stream) {
  BODY
  return cudaGetLastError();
}
"""


def _add(kernel: str, launch: str) -> str:
    return f"#include <cuda_runtime.h>\n{kernel}\n{LAUNCH_ADD.replace('BODY', launch)}"


GRID_STRIDE = _add("""
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = a[i] + b[i];
}""", "add_kernel<<<3, 64, 0, stream>>>(a, b, out, n);")
EARLY_RETURN = _add("""
__global__ void sum_of(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result, int size) {
  const unsigned mine = threadIdx.x + blockDim.x * blockIdx.x;
  if (mine >= size) return;
  result[mine] = x[mine] + y[mine];
}""", "dim3 threads(256), blocks((n - 1) / 256 + 1);\n  sum_of<<<blocks, threads, 0, stream>>>(a, b, out, n);")
EVERY_OTHER_BLOCK = _add("""
__device__ float plus(const float* a, const float* b, int i) { return *(a + i) + *(b + i); }
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  int i = threadIdx.x * gridDim.x + blockIdx.x;
  if (!(i < n)) { return; } else { out[i] = plus(a, b, i); }
}""", "int blocks = n / 128;\n  if (n % 128 != 0) blocks += 1;\n  add_kernel<<<blocks, 128, 0, stream>>>(a, b, out, n);")
STARTS_AT_ONE = _add("""
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x + 1;
  if (i > n) return;
  out[i] = a[i] + b[i];
}""", "add_kernel<<<(n + 255) / 256, 256, 0, stream>>>(a, b, out, n);")
ROUNDS_DOWN = _add("""
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  const int i = threadIdx.x + blockIdx.x * 128;
  if (i < n) out[i] = b[i] + a[i];
}""", "const dim3 grid(n / 128);\n  add_kernel<<<grid, 128, 0, stream>>>(a, b, out, n);")
GUARD_WITH_LESS_OR_EQUAL = _add("""
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) out[i] = a[i] + b[i];
}""", "add_kernel<<<(n + 255) / 256, 256, 0, stream>>>(a, b, out, n);")
TOO_FEW_STRIDES = _add("""
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * gridDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}""", "int blocks = (n + 255) / 256;\n  add_kernel<<<blocks, 256, 0, stream>>>(a, b, out, n);")

ROLES_SWAPPED = EARLY_RETURN.replace("threadIdx.x + blockDim.x * blockIdx.x", "blockIdx.x + blockDim.x * threadIdx.x")
ONE_LARGE_BLOCK = _add("""
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  int i = threadIdx.x;
  out[i] = a[i] + b[i];
}""", "dim3 threads(n);\n  add_kernel<<<dim3(1), threads, 0, stream>>>(a, b, out, n);")
BLOCK_PER_ELEMENT = EARLY_RETURN.replace("blocks((n - 1) / 256 + 1)", "blocks(n)")
PLUS_EQUALS = EARLY_RETURN.replace("result[mine] =", "result[mine] +=")

# 6.2


def _offset(body: str) -> str:
    head = "__device__ inline int64_t cache_offset(const PagedAttentionParams& params, int seq, int token, int kv_head)"
    return f"#include <cstdint>\n{head} {{\n{body}\n}}\n"


ONE_EXPRESSION = _offset("""
  return ((static_cast<int64_t>(params.block_table[
               static_cast<int64_t>(seq) * params.max_blocks_per_seq + token / params.block_size]) * params.block_size
           + token % params.block_size) * params.num_kv_heads + kv_head) * params.head_size;""")
BY_STRIDES = _offset("""
  const int64_t of_head = params.head_size, of_token = of_head * params.num_kv_heads;
  const auto of_block = of_token * params.block_size;
  int logical = token / params.block_size, within = token - logical * params.block_size;
  const int* entry = &params.block_table[logical];
  entry += (long long)seq * params.max_blocks_per_seq;
  return *entry * of_block + within * of_token + kv_head * of_head;""")
BY_STEPS = _offset("""
  long long where = params.block_table[seq * (long long)params.max_blocks_per_seq + token / params.block_size];
  where *= params.block_size;
  where += token % params.block_size;
  where *= params.num_kv_heads;
  where += kv_head;
  where *= params.head_size;
  return where;""")
TABLE_BY_HEADS = _offset("""
  int block_id = params.block_table[seq * params.num_q_heads + token / params.block_size];
  int64_t slot = (int64_t)block_id * params.block_size + token % params.block_size;
  return slot * params.num_kv_heads * params.head_size + kv_head * params.head_size;""")
OVERFLOWS = _offset("""
  int block_id = params.block_table[seq * params.max_blocks_per_seq + token / params.block_size];
  int offset = (block_id * params.block_size + token % params.block_size) * params.num_kv_heads * params.head_size;
  return offset + kv_head * params.head_size;""")
HEADS_BEFORE_SLOTS = _offset("""
  int64_t block_id = params.block_table[seq * params.max_blocks_per_seq + token / params.block_size];
  int64_t row = block_id * params.num_kv_heads + kv_head;
  return row * params.block_size * params.head_size + token % params.block_size * params.head_size;""")

PLACE_IN_THE_SEQUENCE = ONE_EXPRESSION.replace("+ token % params.block_size", "+ token")
ENTRY_ROUNDED_UP = ONE_EXPRESSION.replace("+ token / params.block_size]",
                                          "+ (token + params.block_size - 1) / params.block_size]")
COLUMNS_FIRST = BY_STEPS.replace("seq * (long long)params.max_blocks_per_seq + token / params.block_size",
                                 "token / params.block_size * (long long)params.num_seqs + seq")
BLOCK_PLUS_PLACE = BY_STEPS.replace("  where *= params.block_size;\n", "")
SLOT_ALONE = BY_STEPS.replace("  where *= params.num_kv_heads;\n  where += kv_head;\n  where *= params.head_size;\n", "")

# 6.3

OPERATIONS = """
struct Larger { __device__ static float of(float a, float b) { return a > b ? a : b; } };
struct Sum { __device__ static float of(float a, float b) { return a + b; } };
"""


def _reduce(body: str) -> str:
    return f"{OPERATIONS}template <typename Operation>\n__device__ float block_reduce(float value) {{\n{body}\n}}\n" \
           "__device__ float block_max(float value) { return block_reduce<Larger>(value); }\n" \
           "__device__ float block_sum(float value) { return block_reduce<Sum>(value); }\n"


TREE = _reduce("""
  __shared__ float all[1024];
  all[threadIdx.x] = value;
  __syncthreads();
  for (int count = blockDim.x; count > 1;) {
    int half = (count + 1) / 2;
    if (threadIdx.x + half < count) all[threadIdx.x] = Operation::of(all[threadIdx.x], all[threadIdx.x + half]);
    count = half;
    __syncthreads();
  }
  float result = all[0];
  __syncthreads();
  return result;""")
FIRST_WARP_DECIDES = _reduce("""
  __shared__ float parts[32];
  __shared__ float result;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  for (int d = 1; d < 32; d *= 2) value = Operation::of(value, __shfl_xor_sync(~0u, value, d));
  __syncthreads();  // the call before may still be reading
  if (lane == 31) parts[warp] = value;
  __syncthreads();
  if (warp == 0) {
    float part = parts[lane < warps ? lane : 0];
    for (int d = 16; d >= 1; d /= 2) {
      float other = __shfl_down_sync(~0u, part, d);
      if (lane + d < warps) part = Operation::of(part, other);
    }
    if (lane == 0) result = part;
  }
  __syncthreads();
  return result;""")
ONE_THREAD_DOES_IT = _reduce("""
  __shared__ float all[1024], result;
  all[threadIdx.x] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    result = all[0];
    for (int i = 1; i < blockDim.x; i++) result = Operation::of(result, all[i]);
  }
  __syncthreads();
  value = result;
  __syncthreads();
  return value;""")
TWO_FUNCTIONS = """
__device__ float block_max(float value) {
  __shared__ float values[1024];
  __syncthreads();
  values[threadIdx.x] = value;
  __syncthreads();
  for (int other = 0; other < blockDim.x; ++other) value = fmaxf(value, values[other]);
  return value;
}
__device__ float block_sum(float value) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0.0f;
  __syncthreads();
  atomicAdd(&total, value);
  __syncthreads();
  float result = total;
  __syncthreads();
  return result;
}
"""
TREE_WITHOUT_BARRIER = TREE.replace("count = half;\n    __syncthreads();", "count = half;")
TREE_BARRIER_IN_IF = TREE.replace("if (threadIdx.x + half < count) all[", "if (threadIdx.x + half < count) {\n      all[").replace(
    "count = half;\n    __syncthreads();", "__syncthreads(); }\n    count = half;")
TREE_WITHOUT_LAST_BARRIER = TREE.replace("float result = all[0];\n  __syncthreads();", "float result = all[0];")
ATOMIC_MAX_FROM_ZERO = TWO_FUNCTIONS.replace("for (int other", "value = 0.0f;\n  for (int other")
IN_TURN = _reduce("""
  __shared__ float part[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int d = 16; d; d >>= 1) value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, d));
  if (lane == 0) part[warp] = value;
  __syncthreads();
  float result = part[0];
  for (int i = 1; i < warps; i++) result = Operation::of(part[i], result);
  __syncthreads();
  return result;""")
EVERY_WARP_COLLECTS = _reduce("""
  __shared__ float part[32];
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int d = 16; d; d >>= 1) value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, d));
  if (lane == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  float mine = part[lane < warps ? lane : 0];
  __syncthreads();
  float result = __shfl_sync(0xffffffffu, mine, 0);
  for (int i = 1; i < warps; i++) result = Operation::of(result, __shfl_sync(0xffffffffu, mine, i));
  return result;""")
ZEROS_FILLED_IN = FIRST_WARP_DECIDES.replace("parts[lane < warps ? lane : 0]", "lane < warps ? parts[lane] : 0.0f").replace(
    "if (lane + d < warps) part", "part")
WARP_BY_THREAD_NUMBER = _reduce("""
  __shared__ float part[32];
  for (int d = 16; d; d >>= 1) value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, d));
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  float mine = 0.0f;
  if (threadIdx.x < blockDim.x / 32) mine = part[threadIdx.x];
  for (int d = 16; d; d >>= 1) mine = Operation::of(mine, __shfl_xor_sync(0xffffffffu, mine, d));
  __syncthreads();
  return mine;""")
ALL_32_PARTS = IN_TURN.replace("i < warps", "i < 32")
ROOM_FOR_128 = ONE_THREAD_DOES_IT.replace("all[1024]", "all[128]")
SUM_EITHER_WAY = IN_TURN.replace("Operation::of(value,", "Sum::of(value,").replace("Operation::of(part", "Sum::of(part")
SHUFFLED_AWAY = IN_TURN.replace("value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, d))",
                                "value = __shfl_xor_sync(0xffffffffu, value, d)")
LAST_WARP_LOST = IN_TURN.replace("i < warps", "i + 1 < warps")
BUTTERFLY_ONLY = _reduce("""
  for (int d = 1; d < 32; d *= 2) value = Operation::of(value, __shfl_xor_sync(~0u, value, d));
  return value;""")

# 6.4


def _scores(body: str) -> str:
    return """template <typename T>
__device__ void paged_scores(const PagedAttentionParams& params, float* scores) {
  int seq = blockIdx.x, head = blockIdx.y;
  const T* q_row = static_cast<const T*>(params.q) + seq * params.q_stride + head * params.head_size;
  const T* k_cache = static_cast<const T*>(params.k_cache);
""" + body + "\n}\n"


WARP_FOR_EACH_TOKEN = _scores("""
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32, group = params.num_q_heads / params.num_kv_heads;
  for (int token = threadIdx.x / 32; token < params.context_lens[seq]; token += warps) {
    const T* key = k_cache + cache_offset(params, seq, token, head / group);
    float sum = 0.0f;
    for (int i = lane; i < params.head_size; i += 32) sum += to_float(q_row[i]) * to_float(key[i]);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (lane == 0) scores[token] = sum * params.scale;
  }
  __syncthreads();""")
SCALED_QUERY = _scores("""
  __shared__ float scaled[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    scaled[i] = i < params.head_size ? params.scale * to_float(q_row[i]) : 0.0f;
  }
  __syncthreads();
  const int kv_head = head * params.num_kv_heads / params.num_q_heads;
  int token = threadIdx.x;
  while (token < params.context_lens[seq]) {
    int64_t first = cache_offset(params, seq, token, kv_head);
    scores[token] = 0.0f;
    for (int i = 0; i < params.head_size; ++i) scores[token] += scaled[i] * to_float(k_cache[first + i]);
    token += 128;
  }""")
NO_SHARED_MEMORY = _scores("""
  for (int token = threadIdx.x; token < params.context_lens[seq]; token += blockDim.x) {
    int64_t entry = int64_t(seq) * params.max_blocks_per_seq + token / params.block_size;
    int64_t slot = int64_t(params.block_table[entry]) * params.block_size + token % params.block_size;
    int64_t row = slot * params.num_kv_heads + head / (params.num_q_heads / params.num_kv_heads);
    double product = 0;
    for (int i = params.head_size - 1; i >= 0; --i)
      product += double(to_float(q_row[i])) * to_float(k_cache[row * params.head_size + i]);
    scores[token] = float(product) * params.scale;
  }""")
HEAD_MODULO = NO_SHARED_MEMORY.replace("head / (params.num_q_heads / params.num_kv_heads)", "head % params.num_kv_heads")
NO_WAIT_AT_THE_END = WARP_FOR_EACH_TOKEN.replace("  __syncthreads();", "")
SCALE_FORGOTTEN = SCALED_QUERY.replace("params.scale * to_float", "to_float")
ONE_TOKEN = NO_SHARED_MEMORY.replace(
    "for (int token = threadIdx.x; token < params.context_lens[seq]; token += blockDim.x) {",
    "const int token = threadIdx.x;\n  if (token < params.context_lens[seq]) {")

QUERY_SHARED = _scores("""
  __shared__ float mine[256];
  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) mine[i] = to_float(q_row[i]);
  __syncthreads();
  const int length = params.context_lens[seq], kv = head / (params.num_q_heads / params.num_kv_heads);
  for (int t = threadIdx.x; t < length; t += blockDim.x) {
    const T* key = k_cache + cache_offset(params, seq, t, kv);
    float dot = 0;
    for (int i = 0; i < params.head_size; i++) dot = dot + mine[i] * to_float(key[i]);
    scores[t] = dot * params.scale;
  }""")
DIVIDED_BY_THE_SCALE = QUERY_SHARED.replace("dot * params.scale", "dot / params.scale")
ROOT_OF_HEAD_SIZE = QUERY_SHARED.replace("dot * params.scale", "dot / sqrtf(float(params.head_size))")
WARPS_WAIT_ALONE = QUERY_SHARED.replace("__syncthreads()", "__syncwarp()")
WAITS_FOR_EACH_TOKEN = QUERY_SHARED.replace("    const T* key", "    __syncthreads();\n    const T* key")
DOT_OUTSIDE = QUERY_SHARED.replace("    float dot = 0;\n", "").replace("  for (int t", "  float dot = 0;\n  for (int t")
DOT_REPLACED = QUERY_SHARED.replace("dot = dot + mine", "dot = mine")
ONE_PLACE_FOR_A_THREAD = QUERY_SHARED.replace("scores[t] =", "scores[threadIdx.x] =")
ROW_OF_ALL_SCORES = QUERY_SHARED.replace("scores[t] =",
                                         "scores[(seq * params.num_q_heads + head) * params.max_context_len + t] =")
LENGTH_INCLUDED = QUERY_SHARED.replace("t < length", "t <= length")
PAST_ALONE = QUERY_SHARED.replace("t < length", "t < length - 1")
AN_ELEMENT_FOR_EVERY_THREAD = QUERY_SHARED.replace(
    "for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) mine[i] = to_float(q_row[i]);",
    "int i = threadIdx.x;\n  mine[i] = to_float(q_row[i]);")
ALL_256 = QUERY_SHARED.replace("int i = 0; i < params.head_size", "int i = 0; i < 256")
SCORES_ADDED = QUERY_SHARED.replace("scores[t] =", "scores[t] +=")

# 6.5


def _values(softmax: str, values: str) -> str:
    return f"__device__ inline void softmax(float* scores, int num_tokens) {{\n{softmax}\n}}\n" + """
template <typename T>
__device__ void paged_values(const PagedAttentionParams& params, const float* weights) {
  int seq = blockIdx.x, head = blockIdx.y;
  T* out_row = static_cast<T*>(params.out) + (int64_t(seq) * params.num_q_heads + head) * params.head_size;
  const T* v_cache = static_cast<const T*>(params.v_cache);
""" + values + "\n}\n"


DIVIDED_AT_THE_END = _values("""
  float m = -INFINITY;
  for (int t = threadIdx.x; t < num_tokens; t += blockDim.x) m = max(m, scores[t]);
  m = block_max(m);
  for (int t = threadIdx.x; t < num_tokens; t += blockDim.x) scores[t] = __expf(scores[t] - m);
  __syncthreads();""", """
  const int length = params.context_lens[seq];
  float l = 0.0f;
  for (int t = 0; t < length; ++t) l += weights[t];
  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) {
    float o = 0.0f;
    for (int t = 0; t < length; ++t)
      o += weights[t] * to_float(v_cache[cache_offset(params, seq, t, head * params.num_kv_heads / params.num_q_heads) + i]);
    out_row[i] = from_float<T>(length == 0 ? 0.0f : o / l);
  }""")
THREAD_ZERO_AND_ATOMICS = _values("""
  __syncthreads();
  if (threadIdx.x == 0 && num_tokens > 0) {
    float m = scores[0], l = 0.0f;
    for (int t = 1; t < num_tokens; ++t) m = fmaxf(m, scores[t]);
    for (int t = 0; t < num_tokens; ++t) l += scores[t] = expf(scores[t] - m);
    for (int t = 0; t < num_tokens; ++t) scores[t] /= l;
  }
  __syncthreads();""", """
  __shared__ float sum[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) sum[i] = 0.0f;
  __syncthreads();
  for (int t = threadIdx.x; t < params.context_lens[seq]; t += blockDim.x) {
    const T* value = v_cache + cache_offset(params, seq, t, head / (params.num_q_heads / params.num_kv_heads));
    for (int i = 0; i < params.head_size; ++i) atomicAdd(&sum[i], weights[t] * to_float(value[i]));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) out_row[i] = from_float<T>(sum[i]);""")
EMPTY_FIRST = _values("""
  float largest = -3.0e38f, sum = 0.0f;
  int t = threadIdx.x;
  while (t < num_tokens) { if (scores[t] > largest) largest = scores[t]; t += blockDim.x; }
  largest = block_max(largest);
  for (t = threadIdx.x; t < num_tokens; t += blockDim.x) sum += expf(scores[t] - largest);
  sum = block_sum(sum);
  for (t = threadIdx.x; t < num_tokens; t += blockDim.x) scores[t] = expf(scores[t] - largest) / sum;
  __syncthreads();""", """
  if (params.context_lens[seq] == 0) {
    for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) out_row[i] = from_float<T>(0.0f);
    return;
  }
  const int group = params.num_q_heads / params.num_kv_heads;
  for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) {
    double sum = 0;
    for (int token = params.context_lens[seq] - 1; token >= 0; --token)
      sum += double(weights[token]) * to_float(v_cache[i + cache_offset(params, seq, token, head / group)]);
    out_row[i] = from_float<T>(float(sum));
  }""")
RETURNS_EARLY = EMPTY_FIRST.replace("for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) out_row[i] = "
                                    "from_float<T>(0.0f);\n    return;", "return;")
NO_MAXIMUM = EMPTY_FIRST.replace("expf(scores[t] - largest)", "expf(scores[t])")
FROM_A_SMALL_NUMBER = EMPTY_FIRST.replace("-3.0e38f", "-10000.0f")
OTHER_TOKENS = EMPTY_FIRST.replace("t = threadIdx.x", "t = blockDim.x - 1 - threadIdx.x")
ALL_IN_ONE_PASS = _values("""
  __syncthreads();
  float m = -INFINITY, l = 0;
  for (int t = 0; t < num_tokens; ++t) m = fmaxf(m, scores[t]);
  for (int t = 0; t < num_tokens; ++t) l += expf(scores[t] - m);
  for (int t = threadIdx.x; t < num_tokens; t += blockDim.x) scores[t] = expf(scores[t] - m) / l;
  __syncthreads();""", EMPTY_FIRST.split("T*>(params.v_cache);")[1].removesuffix("\n}\n"))
REDUCES_IN_A_BRANCH = EMPTY_FIRST.replace("  sum = block_sum(sum);", "  if (threadIdx.x < num_tokens) sum = block_sum(sum);")
RETURNS_WITHOUT_A_TOKEN = EMPTY_FIRST.replace("  int t = threadIdx.x;", "  if (threadIdx.x >= num_tokens) return;\n  int t = threadIdx.x;")
ROUNDED_IN_BETWEEN = DIVIDED_AT_THE_END.replace("    float o = 0.0f;", "    T o = from_float<T>(0.0f);").replace(
    "o += weights[t] *", "o = from_float<T>(to_float(o) + weights[t] / l *").replace("+ i]);\n", "+ i]));\n").replace(
    "from_float<T>(length == 0 ? 0.0f : o / l)", "o")
BARRIER_FORGOTTEN = DIVIDED_AT_THE_END.replace("  __syncthreads();", "")

KEPT_AND_ADDED = _values("""
  float top = -INFINITY, total = 0;
  for (int t = threadIdx.x; t < num_tokens; t += blockDim.x) top = fmaxf(top, scores[t]);
  top = block_max(top);
  for (int t = threadIdx.x; t < num_tokens; t += blockDim.x) total += scores[t] = expf(scores[t] - top);
  total = block_sum(total);
  for (int t = threadIdx.x; t < num_tokens; t += blockDim.x) scores[t] = scores[t] / total;
  __syncthreads();""", """
  const int n = params.context_lens[seq], kv = head * params.num_kv_heads / params.num_q_heads;
  for (int e = threadIdx.x; e < params.head_size; e += blockDim.x) {
    float sum = 0;
    for (int t = 0; t < n; t++) sum += weights[t] * to_float(v_cache[cache_offset(params, seq, t, kv) + e]);
    out_row[e] = from_float<T>(sum);
  }""")
NOT_KEPT = KEPT_AND_ADDED.replace("total += scores[t] = expf", "total += expf")
ADDED_BEFORE = KEPT_AND_ADDED.replace("total += scores[t] = expf(scores[t] - top);",
                                      "{ total += scores[t]; scores[t] = expf(scores[t] - top); }")
TOP_IN_THE_SUM = NOT_KEPT.replace("scores[t] / total", "expf(scores[t]) / total")
FROM_ITS_OWN_NUMBER = KEPT_AND_ADDED.replace("float top = -INFINITY,", "float top = scores[threadIdx.x],")
ALL_EXPONENTIALS = KEPT_AND_ADDED.replace("t = threadIdx.x; t < num_tokens; t += blockDim.x) total",
                                          "t = 0; t < num_tokens; t++) total")
SYNCWARP_AT_THE_END = KEPT_AND_ADDED.replace("  __syncthreads();", "  __syncwarp();")
FIRST_ELEMENT = KEPT_AND_ADDED.replace("kv) + e]", "kv)]")
KEYS_ADDED_UP = KEPT_AND_ADDED.replace("to_float(v_cache[", "to_float(static_cast<const T*>(params.k_cache)[")
UP_TO_THE_LONGEST = KEPT_AND_ADDED.replace("n = params.context_lens[seq]", "n = params.max_context_len")
PAST_VALUES = KEPT_AND_ADDED.replace("t < n;", "t < n - 1;")
SUM_GOES_ON = KEPT_AND_ADDED.replace("    float sum = 0;\n", "").replace("  for (int e", "  float sum = 0;\n  for (int e")
LAST_VALUE = KEPT_AND_ADDED.replace("sum += weights", "sum = weights")
TOKENS_SHARED_OUT = KEPT_AND_ADDED.replace("int t = 0; t < n; t++", "int t = threadIdx.x; t < n; t += blockDim.x")
OUTPUT_ADDED_UP = KEPT_AND_ADDED.replace("float sum = 0;", "float sum = to_float(out_row[e]);")
ALL_ELEMENTS = KEPT_AND_ADDED.replace("int e = threadIdx.x; e < params.head_size; e += blockDim.x",
                                      "int e = 0; e < params.head_size; e++")
ROW_TWICE = KEPT_AND_ADDED.replace("out_row[e]", "(out_row + (seq * params.num_q_heads + head) * params.head_size)[e]")

# 6.6

KERNEL = read_kernel("paged_attention.cu").split("// Launches")[0]


def _launcher(launch: str, choose: str) -> str:
    head = 'extern "C" int paged_attention(PagedAttentionParams params, cudaStream_t stream)'
    return f"{KERNEL}\n{launch}\n{head} {{\n{choose}\n}}\n"


ALWAYS_ASKS = _launcher("""
template <typename T>
int launch(PagedAttentionParams params, cudaStream_t stream) {
  size_t bytes = sizeof(float) * params.max_context_len;
  if (params.scores != nullptr) bytes = 0;
  auto kernel = paged_attention_kernel<T>;
  if (int error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes)) return error;
  kernel<<<dim3(params.num_seqs, params.num_q_heads, 1), dim3(128), bytes, stream>>>(params);
  return cudaGetLastError();
}""", """
  switch (params.dtype) {
    case 0: return launch<float>(params, stream);
    case 1: return launch<__half>(params, stream);
    case 2: return launch<__nv_bfloat16>(params, stream);
    default: return cudaErrorInvalidValue;
  }""")
ONE_FUNCTION = _launcher("", """
  const dim3 grid(params.num_seqs, params.num_q_heads);
  const int bytes = params.scores ? 0 : 4 * params.max_context_len, limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
  const auto most = cudaFuncAttribute(limit);
  if (params.dtype == 0) {
    cudaFuncSetAttribute(paged_attention_kernel<float>, most, bytes);
    paged_attention_kernel<float><<<grid, 256, bytes, stream>>>(params);
  } else if (params.dtype == 1) {
    cudaFuncSetAttribute(paged_attention_kernel<__half>, most, bytes);
    paged_attention_kernel<__half><<<grid, 256, bytes, stream>>>(params);
  } else if (params.dtype == 2) {
    cudaFuncSetAttribute(paged_attention_kernel<__nv_bfloat16>, most, bytes);
    paged_attention_kernel<__nv_bfloat16><<<grid, 256, bytes, stream>>>(params);
  } else {
    return -1;
  }
  return cudaPeekAtLastError();""")
SMALL_BLOCKS = _launcher("""
template <typename T>
struct Launcher {
  static int start(const PagedAttentionParams& p, cudaStream_t stream) {
    dim3 grid;
    grid.x = p.num_seqs;
    grid.y = p.num_q_heads;
    int floats = 0;
    if (p.scores == nullptr) floats = p.max_context_len;
    if (floats > 11000)
      cudaFuncSetAttribute(paged_attention_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, floats * 4);
    paged_attention_kernel<T><<<grid, 32, floats * 4, stream>>>(p);
    return (int)cudaGetLastError();
  }
};""", """
  const cudaStream_t queue = stream;
  using Start = int (*)(const PagedAttentionParams&, cudaStream_t);
  const Start starts[] = {Launcher<float>::start, Launcher<__half>::start, Launcher<__nv_bfloat16>::start};
  return params.dtype >= 0 && params.dtype < 3 ? starts[params.dtype](params, queue) : int(cudaErrorInvalidValue);""")
NO_BYTES = ALWAYS_ASKS.replace("dim3(128), bytes, stream", "dim3(128), 0, stream")
SWAPPED = SMALL_BLOCKS.replace("grid.x =", "grid.z =").replace("grid.y =", "grid.x =").replace("grid.z =", "grid.y =")
REST_IS_BFLOAT16 = ALWAYS_ASKS.replace("    case 2: return launch<__nv_bfloat16>(params, stream);\n", "").replace(
    "cudaErrorInvalidValue", "launch<__nv_bfloat16>(params, stream)")
UNKNOWN_IS_FINE = ALWAYS_ASKS.replace("return cudaErrorInvalidValue", "return 0")
ERROR_DROPPED = ALWAYS_ASKS.replace("return launch<", "launch<").replace(">(params, stream);", ">(params, stream); return 0;")
ASKED_BEFORE_THE_LAUNCH = ALWAYS_ASKS.replace("  kernel<<<", "  int error = cudaGetLastError();\n  kernel<<<").replace(
    "return cudaGetLastError()", "return error")
FLOATS_NOT_BYTES = ALWAYS_ASKS.replace("sizeof(float) * params", "params")

BYTES = "size_t bytes = sizeof(float) * params.max_context_len;"
WHOLE_GRID = ALWAYS_ASKS.replace(BYTES, BYTES.replace("sizeof", "params.num_seqs * params.num_q_heads * sizeof"))
WITH_A_WORKSPACE = ALWAYS_ASKS.replace("params.scores != nullptr", "params.scores == nullptr")
SIZE_OF_T = ALWAYS_ASKS.replace("sizeof(float)", "sizeof(T)")
ASKS_THE_TENSOR = ALWAYS_ASKS.replace("sizeof(float) * params.max_context_len",
                                      "sizeof(float) * params.context_lens[params.num_seqs - 1]")
KV_GRID = SMALL_BLOCKS.replace("grid.y = p.num_q_heads", "grid.y = p.num_kv_heads")
LONG_GRID = SMALL_BLOCKS.replace("grid.x = p.num_seqs;\n    grid.y = p.num_q_heads;", "grid.x = p.num_seqs * p.num_q_heads;")
THREADS_FIRST = ALWAYS_ASKS.replace("<<<dim3(params.num_seqs, params.num_q_heads, 1), dim3(128),",
                                    "<<<128, dim3(params.num_seqs, params.num_q_heads),")
BFLOAT16_IS_ONE = SMALL_BLOCKS.replace("Launcher<__half>::start, Launcher<__nv_bfloat16>::start",
                                       "Launcher<__nv_bfloat16>::start, Launcher<__half>::start")
NO_BREAK = ALWAYS_ASKS.replace("return launch<", "launch<")
ALWAYS_227 = ALWAYS_ASKS.replace(BYTES, "size_t bytes = 227 * 1024;").replace(
    "  if (params.scores != nullptr) bytes = 0;\n", "")

RIGHT_ANSWERS = {
    "6.1": [GRID_STRIDE, EARLY_RETURN, EVERY_OTHER_BLOCK],
    "6.2": [ONE_EXPRESSION, BY_STRIDES, BY_STEPS],
    "6.3": [TREE, FIRST_WARP_DECIDES, ONE_THREAD_DOES_IT, TWO_FUNCTIONS, IN_TURN, EVERY_WARP_COLLECTS],
    "6.4": [WARP_FOR_EACH_TOKEN, SCALED_QUERY, NO_SHARED_MEMORY, QUERY_SHARED],
    "6.5": [DIVIDED_AT_THE_END, THREAD_ZERO_AND_ATOMICS, EMPTY_FIRST, KEPT_AND_ADDED],
    "6.6": [ALWAYS_ASKS, ONE_FUNCTION, SMALL_BLOCKS],
}
WRONG_ANSWERS = {
    "6.1": {"no-guard": [GUARD_WITH_LESS_OR_EQUAL], "rounded-down": [ROUNDS_DOWN], "blocks-overlap": [TOO_FEW_STRIDES],
            "index-parts-swapped": [ROLES_SWAPPED], "all-in-one-block": [ONE_LARGE_BLOCK],
            "a-block-for-each-element": [BLOCK_PER_ELEMENT], "added-to-out": [PLUS_EQUALS]},
    "6.2": {"wrong-table-stride": [TABLE_BY_HEADS], "offset-overflows": [OVERFLOWS], "wrong-layout": [HEADS_BEFORE_SLOTS],
            "place-in-the-sequence": [PLACE_IN_THE_SEQUENCE], "entry-too-far": [ENTRY_ROUNDED_UP],
            "table-transposed": [COLUMNS_FIRST], "block-size-forgotten": [BLOCK_PLUS_PLACE],
            "slot-not-offset": [SLOT_ALONE]},
    "6.3": {"missing-barrier": [TREE_WITHOUT_BARRIER], "shared-memory-reused": [TREE_WITHOUT_LAST_BARRIER],
            "barrier-in-branch": [TREE_BARRIER_IN_IF],
            "max-starts-at-zero": [ATOMIC_MAX_FROM_ZERO, ZEROS_FILLED_IN], "each-warp-alone": [BUTTERFLY_ONLY],
            "only-the-first-warp-collects": [WARP_BY_THREAD_NUMBER], "number-of-warps-fixed": [ALL_32_PARTS, ROOM_FOR_128],
            "operation-not-used": [SUM_EITHER_WAY], "taken-not-combined": [SHUFFLED_AWAY],
            "last-warp-left-out": [LAST_WARP_LOST]},
    "6.4": {"wrong-head-mapping": [HEAD_MODULO], "missing-scale": [SCALE_FORGOTTEN],
            "one-token-for-each-thread": [ONE_TOKEN], "other-owner": [NO_WAIT_AT_THE_END],
            "scale-upside-down": [DIVIDED_BY_THE_SCALE], "scale-of-its-own": [ROOT_OF_HEAD_SIZE],
            "barrier-of-a-warp": [WARPS_WAIT_ALONE], "barrier-in-branch": [WAITS_FOR_EACH_TOKEN],
            "sum-not-reset": [DOT_OUTSIDE], "last-product-only": [DOT_REPLACED],
            "score-at-the-threads-number": [ONE_PLACE_FOR_A_THREAD], "row-added-again": [ROW_OF_ALL_SCORES],
            "one-token-too-many": [LENGTH_INCLUDED], "new-token-left-out": [PAST_ALONE],
            "query-read-too-far": [AN_ELEMENT_FOR_EVERY_THREAD], "query-read-to-the-end-of-its-room": [ALL_256],
            "added-to-scores": [SCORES_ADDED]},
    "6.5": {"empty-context-unwritten": [RETURNS_EARLY], "max-not-subtracted": [NO_MAXIMUM],
            "missing-barrier": [BARRIER_FORGOTTEN], "max-starts-too-high": [FROM_A_SMALL_NUMBER],
            "scores-of-others": [OTHER_TOKENS], "score-overwritten-too-early": [ALL_IN_ONE_PASS],
            "block-call-in-branch": [REDUCES_IN_A_BRANCH, RETURNS_WITHOUT_A_TOKEN],
            "sum-in-16-bits": [ROUNDED_IN_BETWEEN], "divided-as-they-are": [NOT_KEPT], "scores-added-up": [ADDED_BEFORE],
            "maximum-in-the-sum-alone": [TOP_IN_THE_SUM], "start-from-a-score": [FROM_ITS_OWN_NUMBER],
            "each-thread-all-scores": [ALL_EXPONENTIALS], "barrier-of-a-warp": [SYNCWARP_AT_THE_END],
            "element-forgotten": [FIRST_ELEMENT], "keys-for-values": [KEYS_ADDED_UP],
            "behind-the-context": [UP_TO_THE_LONGEST], "new-token-left-out": [PAST_VALUES], "sum-not-reset": [SUM_GOES_ON],
            "last-token-only": [LAST_VALUE], "own-tokens-only": [TOKENS_SHARED_OUT], "added-to-out": [OUTPUT_ADDED_UP],
            "each-thread-all-elements": [ALL_ELEMENTS], "row-added-again": [ROW_TWICE]},
    "6.6": {"no-dynamic-smem": [NO_BYTES], "grid-swapped": [SWAPPED], "bytes-not-floats": [FLOATS_NOT_BYTES],
            "unknown-dtype-accepted": [REST_IS_BFLOAT16, UNKNOWN_IS_FINE],
            "error-not-returned": [ERROR_DROPPED, ASKED_BEFORE_THE_LAUNCH],
            "memory-for-the-whole-grid": [WHOLE_GRID], "workspace-reversed": [WITH_A_WORKSPACE],
            "scores-in-the-caches-type": [SIZE_OF_T], "host-reads-a-tensor": [ASKS_THE_TENSOR],
            "grid-of-kv-heads": [KV_GRID], "grid-in-one-dimension": [LONG_GRID], "launch-numbers-swapped": [THREADS_FIRST],
            "formats-exchanged": [BFLOAT16_IS_ONE], "falls-through": [NO_BREAK], "all-memory-asked-for": [ALWAYS_227]},
}
