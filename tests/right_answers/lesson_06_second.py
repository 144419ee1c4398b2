"""Lesson 06, as a second learner wrote it."""

import torch
from cpp_edits import edited
from right_answers.lesson_06 import (
    ALWAYS_ASKS,
    BYTES,
    EARLY_RETURN,
    KEPT_AND_ADDED,
    QUERY_SHARED,
    SCALED_QUERY,
    _offset,
    _reduce,
)
from right_answers.lesson_06_hunt import OTHER_KERNEL

from paged_attention.validate import check_range, check_tensor

# 6.1

AT_LEAST_ONE_BLOCK = edited(EARLY_RETURN, ("blocks((n - 1) / 256 + 1)", "blocks(n < 256 ? 1 : n / 256)"))
GUARD_WITHIN_THE_BLOCK = edited(EARLY_RETURN, ("if (mine >= size)", "if (threadIdx.x >= size)"))

ALWAYS_64_BLOCKS = edited(EARLY_RETURN, ("blocks((n - 1) / 256 + 1)", "blocks(64)"))
ALWAYS_5_BLOCKS = edited(EARLY_RETURN, ("blocks((n - 1) / 256 + 1)", "blocks = 5"))
ALWAYS_65535_BLOCKS = edited(EARLY_RETURN, ("blocks((n - 1) / 256 + 1)", "blocks(65535)"))
COUNTED_FOR_LARGER = edited(EARLY_RETURN, ("threads(256)", "threads(512)"), ("(n - 1) / 256 + 1", "(n + 1023) / 1024"))
INDEX_FOR_LARGER = edited(EARLY_RETURN, ("threads(256), blocks((n - 1) / 256 + 1)", "threads(128), blocks((n + 127) / 128)"),
                          ("blockDim.x * blockIdx.x", "256 * blockIdx.x"))
NO_BLOCK_NUMBER = edited(EARLY_RETURN, ("threadIdx.x + blockDim.x * blockIdx.x", "threadIdx.x + blockDim.x"))
THREE_PARTS_ADDED = edited(EARLY_RETURN, ("blockDim.x * blockIdx.x", "blockDim.x + blockIdx.x"))
BLOCKS_FROM_1 = edited(EARLY_RETURN, ("blockDim.x * blockIdx.x", "blockDim.x * (1 + blockIdx.x)"))
ELEMENTS_FROM_1 = edited(EARLY_RETURN, ("blockDim.x * blockIdx.x", "blockDim.x * blockIdx.x + 1"))
MORE_BLOCKS_THAN_NEEDED = edited(EARLY_RETURN, ("(n - 1) / 256 + 1", "(n + 127) / 128"))

# 6.2

SLOT = """
  int64_t block = params.block_table[seq * params.max_blocks_per_seq + token / params.block_size];
  int place = token % params.block_size;
"""
PLACE_OF_THE_ENTRY = _offset("""
  int64_t block = seq * params.max_blocks_per_seq + token / params.block_size;
  int64_t slot = block * params.block_size + token % params.block_size;
  return (slot * params.num_kv_heads + kv_head) * params.head_size;""")
HEAD_AT_THE_END = _offset(SLOT + """
  int64_t slot = block * params.block_size + place;
  return slot * params.num_kv_heads * params.head_size + kv_head;""")
STEPS_OF_ONE_HEAD = _offset(SLOT + """
  int64_t offset = block * params.block_size * params.num_kv_heads * params.head_size;
  offset += place * params.head_size;
  return offset + kv_head * params.head_size;""")
DIVIDED_AGAIN = _offset(SLOT + """
  int head = kv_head * params.num_kv_heads / params.num_q_heads;
  return ((block * params.block_size + place) * params.num_kv_heads + head) * params.head_size;""")
BEFORE = """
  int before = token - 1;
  int64_t block = params.block_table[seq * params.max_blocks_per_seq + before / params.block_size];
"""
ADDRESS = """
  return ((block * params.block_size + place) * params.num_kv_heads + kv_head) * params.head_size;"""
BLOCK_OF_THE_TOKEN_BEFORE = _offset(BEFORE + "  int place = token % params.block_size;" + ADDRESS)
ALL_OF_THE_TOKEN_BEFORE = _offset(BEFORE + "  int place = before % params.block_size;" + ADDRESS)
PLACE_OF_THE_TOKEN_BEFORE = _offset(SLOT + "  place = (token - 1) % params.block_size;" + ADDRESS)
PLACE_FROM_1 = _offset(SLOT + "  place -= 1;" + ADDRESS)
LAST_TOKENS_PLACE = _offset(SLOT + "  place = (params.context_lens[seq] - 1) % params.block_size;" + ADDRESS)
BEHIND_THE_CONTEXT = _offset("""
  const int num_tokens = params.context_lens[seq];
  if (num_tokens <= token) return -1;""" + SLOT + ADDRESS)
HEADS_OF_A_ROW = _offset(SLOT + """
  int64_t of_head = params.max_blocks_per_seq * params.block_size * params.head_size;
  return kv_head * of_head + (block * params.block_size + place) * params.head_size;""")
HEADS_OF_A_TABLE = _offset(SLOT + """
  const int64_t num_blocks = params.max_blocks_per_seq * params.num_seqs;
  block += kv_head * num_blocks;
  return (block * params.block_size + place) * params.head_size;""")
KEYS_AND_VALUES_BY_TURNS = _offset(SLOT + "  block *= 2;" + ADDRESS)

# 6.3

ALL_IN_SHARED = """
  __shared__ float all[1024];
  int t = threadIdx.x;
  __syncthreads();
  all[t] = value;
  __syncthreads();
"""
THREAD_ZERO_KEEPS_IT = _reduce(ALL_IN_SHARED + """
  if (t == 0) for (int other = 1; other < blockDim.x; ++other) value = Operation::of(value, all[other]);
  __syncthreads();
  return value;""")
TREE_IN_REGISTERS = _reduce(ALL_IN_SHARED + """
  for (int n = blockDim.x; n > 1; n = (n + 1) / 2) {
    int half = (n + 1) / 2;
    if (t + half < n) all[t] = value = Operation::of(value, all[t + half]);
    __syncthreads();
  }
  return value;""")
HALF_A_MASK = _reduce("""
  __shared__ float parts[32];
  for (int d = 1; d < 32; d *= 2) value = Operation::of(value, __shfl_xor_sync(32, value, d));
  parts[threadIdx.x / 32] = value;
  __syncthreads();
  for (int i = 0; i < blockDim.x / 32; ++i) value = Operation::of(value, parts[i]);
  return value;""")
FIRST_WARP_SHUFFLES = _reduce("""
  __shared__ float parts[32];
  if (threadIdx.x / 32 == 0)
    for (int d = 1; d < 32; d *= 2) value = Operation::of(value, __shfl_xor_sync(~0u, value, d));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float result = parts[0];
  for (int i = 1; i < blockDim.x / 32; ++i) result = Operation::of(result, parts[i]);
  __syncthreads();
  return result;""")
EVERY_DISTANCE = _reduce("""
  __shared__ float parts[32];
  for (int d = 31; d > 0; d--) value = Operation::of(value, __shfl_xor_sync(~0u, value, d));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float result = parts[0];
  for (int i = 1; i < blockDim.x / 32; ++i) result = Operation::of(result, parts[i]);
  __syncthreads();
  return result;""")
BUTTERFLY = "for (int d = 16; d > 0; d /= 2) value = Operation::of(value, __shfl_xor_sync(~0u, value, d));"
WARPS_TOGETHER = """
  __shared__ float parts[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  BUTTERFLY
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  float result = parts[0];
  for (int i = 1; i < blockDim.x / 32; ++i) result = Operation::of(result, parts[i]);
  __syncthreads();
  return result;""".replace("BUTTERFLY", BUTTERFLY)
A_THIRD = _reduce(edited(WARPS_TOGETHER, ("d /= 2", "d /= 3")))
FOUR_LESS = _reduce(edited(WARPS_TOGETHER, ("d /= 2", "d -= 4")))
DOWN_BY_TWO = _reduce(edited(WARPS_TOGETHER, ("d /= 2", "d -= 2"), ("xor", "down")))
LANE_FOR_WARP = _reduce(edited(
    WARPS_TOGETHER, ("threadIdx.x % 32", "threadIdx.x >> 5"), ("threadIdx.x / 32", "threadIdx.x & 31")))
ONE_PART_FOR_ALL = _reduce(edited(WARPS_TOGETHER, ("result, parts[i]", "result, parts[0]")))
WARPS_OF_64 = _reduce(edited(WARPS_TOGETHER, ("threadIdx.x / 32", "threadIdx.x >> 6")))
WARPS_OF_16 = _reduce(edited(WARPS_TOGETHER, ("threadIdx.x / 32", "threadIdx.x / 16")))
LANES_OF_64 = _reduce(edited(WARPS_TOGETHER, ("threadIdx.x % 32", "threadIdx.x % 64")))
WARPS_COUNTED_BY_64 = _reduce(edited(WARPS_TOGETHER, ("blockDim.x / 32", "blockDim.x / 64")))
WARPS_COUNTED_BY_16 = _reduce(edited(WARPS_TOGETHER, ("blockDim.x / 32", "blockDim.x / 16")))
ALL_IN_PLACE_0 = _reduce(edited(WARPS_TOGETHER, ("parts[warp]", "parts[lane]")))
FROM_PART_1 = _reduce(edited(WARPS_TOGETHER, ("result = parts[0]", "result = 0")))
PART_0_TWICE = _reduce(edited(WARPS_TOGETHER, ("int i = 1;", "int i = 0;")))
WRITTEN_BY_LANE_31 = _reduce(edited(WARPS_TOGETHER, ("xor", "down"), ("lane == 0", "lane == 31")))
SHUFFLED_UP = _reduce(edited(WARPS_TOGETHER, ("xor", "up")))
FROM_VALUE_1 = _reduce(ALL_IN_SHARED + """
  float result = 0.0f;
  for (int other = 1; other < blockDim.x; ++other) result = Operation::of(result, all[other]);
  return result;""")
OWN_VALUE_TWICE = _reduce(ALL_IN_SHARED + """
  for (int other = 0; other < blockDim.x; ++other) value = Operation::of(value, all[other]);
  return value;""")
VALUE_0_TWICE = _reduce(ALL_IN_SHARED + """
  float result = all[0];
  for (int other = 0; other < blockDim.x; ++other) result = Operation::of(result, all[other]);
  return result;""")
HALF_THE_WARPS_AWAY = _reduce("""
  __shared__ float parts[32];
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  BUTTERFLY
  if (lane == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[lane % warps];
  __syncthreads();
  for (int d = warps / 2; d > 0; d /= 2) value = Operation::of(value, __shfl_xor_sync(~0u, value, d));
  return value;""".replace("BUTTERFLY", BUTTERFLY))
PARTS_SHUFFLED_BY_WARP_0 = _reduce("""
  __shared__ float parts[32];
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  BUTTERFLY
  if (lane == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    value = parts[lane % warps];
    for (int d = warps >> 1; d; d >>= 1) value = Operation::of(__shfl_xor_sync(~0u, value, d), value);
  }
  __syncthreads();
  return value;""".replace("BUTTERFLY", BUTTERFLY))
ONE_TOTAL = """
  __shared__ float total;
  BUTTERFLY
  if (threadIdx.x == 0) total = 0.0f;
  __syncthreads();
  if (threadIdx.x % 32 == 0) total = Operation::of(total, value);
  __syncthreads();
  value = total;
  __syncthreads();
  return value;""".replace("BUTTERFLY", BUTTERFLY)
ADDED_BY_EVERY_WARP = _reduce(ONE_TOTAL)
ADDED_BY_OTHER_WARPS = _reduce(edited(
    ONE_TOTAL, ("total = 0.0f", "total = value"), ("% 32 == 0)", "% 32 == 0 && threadIdx.x)")))
NOT_EVEN_SET_TO_ZERO = _reduce(edited(ONE_TOTAL, ("  if (threadIdx.x == 0) total = 0.0f;\n  __syncthreads();\n", "")))
ADDED_BY_EVERYBODY = _reduce("""
  __shared__ float total;
  total += value;
  __syncthreads();
  return total;""")

# 6.4

LOADED = "for (int i = threadIdx.x; i < params.head_size; i += blockDim.x) mine[i] = to_float(q_row[i]);"
KEY = "const T* key = k_cache + cache_offset(params, seq, t, kv);"
FIRST_KEY_AND_ON = edited(
    QUERY_SHARED, ("  for (int t", "  const T* keys = k_cache + cache_offset(params, seq, 0, kv);\n  for (int t"),
    (KEY, "const T* key = keys + t * params.num_kv_heads * params.head_size;"))
INT_IN_BETWEEN = edited(SCALED_QUERY, ("int64_t first", "int first"))
INT_CAST = edited(QUERY_SHARED, (KEY, "const T* key = &k_cache[(int)cache_offset(params, seq, t, kv)];"))
AS_IN_6_1 = edited(QUERY_SHARED, ("int t = threadIdx.x;", "int t = blockDim.x * blockIdx.x + threadIdx.x;"))
EVERYBODY_LOADS = edited(QUERY_SHARED, (LOADED, "for (int i = 0; i < params.head_size; i++) mine[i] = to_float(q_row[i]);"))
ALL_256_LOADED = edited(QUERY_SHARED, (LOADED, LOADED.replace("params.head_size", "256")))
WAITS_WHILE_LOADING = edited(
    QUERY_SHARED, (f"{LOADED}\n  __syncthreads();",
                   LOADED.replace("mine[i] = to_float(q_row[i]);", "{ mine[i] = to_float(q_row[i]); __syncthreads(); }")))
SCALED_AT_BOTH_ENDS = edited(SCALED_QUERY, ("    token += 128;", "    scores[token] *= params.scale;\n    token += 128;"))
SHARED_OUT_ELEMENTS = edited(QUERY_SHARED, ("int i = 0; i < params.head_size; i++",
                                            "int i = threadIdx.x; i < params.head_size; i += 128"))
QUERY_TIMES_VALUES = edited(QUERY_SHARED, ("k_cache + cache", "static_cast<const T*>(params.v_cache) + cache"))
TOKEN_LAST = edited(SCALED_QUERY, ("(params, seq, token, kv_head)", "(params, seq, kv_head, token)"))
HEAD_WITHIN_THE_GROUP = edited(QUERY_SHARED, ("kv = head /", "kv = head %"))
QUERY_FROM_THE_START = edited(QUERY_SHARED, ("to_float(q_row[i])", "to_float(((const T*)params.q)[i])"))
EXPONENTIALS = edited(QUERY_SHARED, ("dot * params.scale", "expf(dot * params.scale)"))
HEAD_ADDED_TO_THE_ROW = edited(SCALED_QUERY, ("to_float(q_row[i])", "to_float((q_row + params.head_size * head)[i])"))
ROW_OF_THE_QUERY_AGAIN = edited(
    QUERY_SHARED, ("q_row[i]", "q_row[seq * params.q_stride + head * params.head_size + i]"))
LENGTH_BY_Y = edited(QUERY_SHARED, ("params.context_lens[seq]", "params.context_lens[blockIdx.y]"))
LENGTH_BY_HEAD = edited(SCALED_QUERY, ("params.context_lens[seq]", "params.context_lens[head]"))
ROUNDED_UP = edited(
    SCALED_QUERY, ("  int token =", "  const int bs = params.block_size, length = params.context_lens[seq];\n  int token ="),
    ("token < params.context_lens[seq]", "token < (length + bs - 1) / bs * bs"))


def by_blocks(block_loop, slot_loop, guard=""):
    """Two loops instead of one: over the entries of the table, and over the slots of a block."""
    return edited(
        QUERY_SHARED,
        ("  for (int t = threadIdx.x; t < length; t += blockDim.x) {",
         f"  const int bs = params.block_size, blocks = (length + bs - 1) / bs;\n"
         f"  for ({block_loop}) for ({slot_loop}) {{\n    int t = b * bs + s;{guard}"))


ALL_THREADS_ON_A_BLOCK = ("int b = 0; b < blocks; b++", "int s = threadIdx.x; s < bs; s += blockDim.x")
A_THREAD_FOR_EACH_BLOCK = ("int b = threadIdx.x; b < blocks; b += blockDim.x", "int s = 0; s < bs; s++")
NO_TOKEN_NO_SCORE = "\n    if (t >= length) continue;"
CAST_TO_FLOATS = edited(QUERY_SHARED, (KEY, "auto key = (const float*)(k_cache + cache_offset(params, seq, t, kv));"))
POOL_OF_FLOATS = edited(SCALED_QUERY, ("to_float(k_cache[first + i])", "((const float*)params.k_cache)[first + i]"))
WARP_STEPS = edited(QUERY_SHARED, ("t += blockDim.x", "t += 32"))
GRID_STEPS = edited(SCALED_QUERY, ("token += 128", "token += gridDim.x"))
HEAD_STEPS = edited(QUERY_SHARED, ("t += blockDim.x", "t += gridDim.y"))
A_PLACE_FOR_EACH_THREAD = edited(QUERY_SHARED, ("float mine[256]", "float mine[128]"))
NOBODY_LOADS = edited(QUERY_SHARED, (f"  {LOADED}\n  __syncthreads();\n", ""))
TOKEN_FIRST = edited(SCALED_QUERY, ("(params, seq, token, kv_head)", "(params, token, seq, kv_head)"))
ROWS_COUNTED_AGAIN = edited(QUERY_SHARED, (KEY, KEY.replace("cache_offset", "params.head_size * cache_offset")))
HEAD_COUNTED_AGAIN = edited(SCALED_QUERY, ("k_cache[first + i]", "k_cache[first + kv_head * params.head_size + i]"))
KEY_OF_THE_FIRST_TOKEN = edited(
    QUERY_SHARED, (f"    {KEY}\n", ""),
    ("  for (int t", f"  {KEY.replace('seq, t,', 'seq, threadIdx.x,')}\n  for (int t"))
LOOKED_UP_WITH_GUARD = edited(
    SCALED_QUERY, ("    int64_t first = cache_offset(params, seq, token, kv_head);\n", ""),
    ("  while", """  int64_t first = 0;
  if (token < params.context_lens[seq]) first = cache_offset(params, seq, token, kv_head);
  while"""))
DOT = "dot = dot + mine[i] * to_float(key[i]);"
NOT_SCALED = edited(QUERY_SHARED, ("dot * params.scale", "dot"))
SCALED_PRODUCTS = edited(NOT_SCALED, (DOT, "dot += params.scale * mine[i] * to_float(key[i]);"))
SCALED_SUMS = edited(NOT_SCALED, (DOT, f"{{ {DOT} dot *= params.scale; }}"))
SCALED_BEFORE_EACH = edited(NOT_SCALED, (DOT, DOT.replace("dot +", "dot * params.scale +")))
SCALED_AT_THE_END_TOO = edited(QUERY_SHARED, (DOT, f"{{ {DOT} dot *= params.scale; }}"))
WHOLE_ROOT = edited(QUERY_SHARED, ("dot * params.scale", "dot * (1 / (int)sqrtf(params.head_size))"))
SCALE_IN_AN_INT = edited(QUERY_SHARED, ("  for (int t", "  const int scale = params.scale;\n  for (int t"),
                         ("dot * params.scale", "dot * scale"))
DIVIDED_BY_HEAD_SIZE = edited(QUERY_SHARED, ("dot * params.scale", "dot / params.head_size"))
DIVIDED_TOO = edited(QUERY_SHARED, ("dot * params.scale", "dot * params.scale / params.head_size"))
ROOT_TOO = edited(QUERY_SHARED, ("dot * params.scale", "dot * params.scale / sqrtf(params.head_size)"))
ONE_HEAD_FURTHER = edited(QUERY_SHARED, ("kv = head /", "kv = (head + 1) /"))
ELEMENT_T_OF_THE_QUERY = edited(QUERY_SHARED, (DOT, DOT.replace("mine[i]", "mine[t]")))
ELEMENT_T_OF_THE_KEY = edited(QUERY_SHARED, (DOT, DOT.replace("key[i]", "key[t]")))
ELEMENT_OF_THE_THREAD = edited(SCALED_QUERY, ("k_cache[first + i]", "k_cache[first + threadIdx.x]"))
LOADED_IN_STEPS_OF_32 = edited(QUERY_SHARED, (LOADED, LOADED.replace("blockDim.x", "32")))
EVERYBODY_LOADS_SOME = edited(QUERY_SHARED, (LOADED, LOADED.replace("i += blockDim.x", "i++")))
TABLE_ROW_OF_THE_HEAD = edited(SCALED_QUERY, ("(params, seq, token, kv_head)", "(params, head, token, kv_head)"))
TABLE_ROW_BY_Y = edited(QUERY_SHARED, (KEY, KEY.replace("seq, t", "blockIdx.y, t")))
ELEMENT_T_OF_BOTH = edited(QUERY_SHARED, (DOT, DOT.replace("[i]", "[t]")))

# 6.5

VALUE = "v_cache[cache_offset(params, seq, t, kv) + e]"
FIRST_VALUE_AND_ON = edited(
    KEPT_AND_ADDED,
    ("    float sum = 0;", "    float sum = 0;\n    const T* value = v_cache + cache_offset(params, seq, 0, kv) + e;"),
    (VALUE, "value[t * params.head_size * params.num_kv_heads]"))
CUT_TO_AN_INT = edited(KEPT_AND_ADDED, (VALUE, VALUE.replace("cache_offset", "int(cache_offset").replace("kv)", "kv))")))
ONE_SCORE_EACH = KEPT_AND_ADDED.replace(
    "for (int t = threadIdx.x; t < num_tokens; t += blockDim.x)", "if (int t = threadIdx.x; t < num_tokens)")
SUM_OF_MAXIMA = edited(KEPT_AND_ADDED, ("block_max(top)", "block_sum(top)"))
MEAN_OF_EXPONENTIALS = edited(KEPT_AND_ADDED, ("scores[t] / total", "scores[t] / num_tokens"))
VALUES_WITHIN_THE_GROUP = edited(
    KEPT_AND_ADDED, ("head * params.num_kv_heads / params.num_q_heads", "head % (params.num_q_heads / params.num_kv_heads)"))
EXP2 = KEPT_AND_ADDED.replace("expf(", "exp2f(")
SCORE_0_FIRST = edited(KEPT_AND_ADDED, ("float top = -INFINITY,", "float top = scores[0],"))
NOTHING_TO_ADD = edited(KEPT_AND_ADDED, ("  total = block_sum(total);",
                                         "  if (total == 0.0f) return;\n  total = block_sum(total);"))
UP_TO_AND_WITH = KEPT_AND_ADDED.replace("t < num_tokens", "t <= num_tokens")
ELEMENTS_BY_THREADS = edited(KEPT_AND_ADDED, ("for (int e = threadIdx.x; e < params.head_size; e += blockDim.x) {",
                                              "{\n    int e = threadIdx.x;"))
ONE_ELEMENT_TOO_MANY = edited(KEPT_AND_ADDED, ("e < params.head_size", "e <= params.head_size"))
WEIGHT_E = edited(KEPT_AND_ADDED, ("weights[t]", "weights[e]"))
MEAN = edited(KEPT_AND_ADDED, ("from_float<T>(sum)", "from_float<T>(sum / n)"))
FROM_TOKEN_1 = edited(KEPT_AND_ADDED, ("int t = 0; t < n;", "int t = 1; t < n;"))
HEAD_TWICE = edited(KEPT_AND_ADDED, ("out_row[e]", "out_row[head * params.head_size + e]"))
HEAD_FOR_TOKEN = edited(KEPT_AND_ADDED, (VALUE, VALUE.replace("t, kv", "kv, t")))
ADDED_BY_TOKENS = edited(
    KEPT_AND_ADDED, ("    float sum = 0;", "    out_row[e] = from_float<T>(0.0f);\n  }\n  __syncthreads();"),
    ("    for (int t = 0; t < n; t++) sum += weights[t]", "  for (int t = threadIdx.x; t < n; t += blockDim.x)\n"
     "    for (int e = 0; e < params.head_size; e++) {\n      float sum = to_float(out_row[e]) + weights[t]"))
ONE_MORE = edited(KEPT_AND_ADDED, ("scores[t] / total", "scores[t] / (total + 1.0f)"))
A_THOUSANDTH_MORE = edited(KEPT_AND_ADDED, ("scores[t] / total", "scores[t] / (1e-3f + total)"))
SUM_FROM_1 = edited(KEPT_AND_ADDED, ("float top = -INFINITY, total = 0;", "float top = -INFINITY, total = 1;"))
ROOT_OF_8 = edited(KEPT_AND_ADDED, ("expf(scores[t] - top)", "expf((scores[t] - top) * 0.35355339f)"))
ROOT_OF_THE_LENGTH = edited(KEPT_AND_ADDED, ("expf(scores[t] - top)", "expf((scores[t] - top) / sqrtf(num_tokens))"))
ELEMENTS_OF_OTHER_HEADS = edited(KEPT_AND_ADDED, ("kv) + e]", "kv) + params.head_size * e]"))
ELEMENTS_BEFORE_HEADS = edited(KEPT_AND_ADDED, ("kv) + e]", "kv) + e * params.num_kv_heads]"))
ELEMENTS_OF_OTHER_SLOTS = edited(KEPT_AND_ADDED, ("kv) + e]", "kv) + e * params.num_kv_heads * params.head_size]"))

# 6.6

ROOM_FOR_A_ROW = edited(ALWAYS_ASKS, (BYTES, BYTES.replace("params.max_context_len",
                                                           "params.block_size * params.max_blocks_per_seq")))
ROOM_FOR_THE_QUERY = edited(ALWAYS_ASKS, (BYTES, BYTES.replace("max_context_len", "head_size")))
NO_BFLOAT16 = edited(ALWAYS_ASKS, ("    case 2: return launch<__nv_bfloat16>(params, stream);\n", ""))
IF_CHAIN = edited(ALWAYS_ASKS, ("switch (params.dtype) {\n    case 0: return", "if (params.dtype == 0) return"),
                  ("case 1: return", "else if (params.dtype == 1) return"),
                  ("case 2: return", "else if (params.dtype == 2) return"),
                  ("default: return cudaErrorInvalidValue;\n  }", "return cudaErrorInvalidValue;"))
ONE_SIGN_LAST = edited(IF_CHAIN, ("dtype == 2", "dtype = 2"))
ONE_SIGN_EACH = IF_CHAIN.replace("==", "=")
ONE_SIGN_FOR_NULL = edited(ALWAYS_ASKS, ("params.scores != nullptr", "params.scores = nullptr"))
ALWAYS_48_KIB = edited(ALWAYS_ASKS, (BYTES, "size_t bytes = 48 * 1024;"),
                       ("  if (params.scores != nullptr) bytes = 0;\n", ""))
MEMORY_OF_64_KIB = edited(ALWAYS_ASKS, ("dim3(128), bytes,", "dim3(128), 16384 * sizeof(float),"))
NO_HALF = edited(ALWAYS_ASKS, ("    case 1: return launch<__half>(params, stream);\n", ""))

# 6.7


def checked(needed_for, low=0, less=0):
    """Whole tensors at once, as check_range() takes them."""
    def check(block_table, context_lens, num_blocks, block_size):
        check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
        check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
        needed = needed_for(block_table, context_lens, block_size)
        used = torch.arange(block_table.shape[1]) < needed[:, None]
        check_range("block_table", block_table[used], low, num_blocks - less, "the blocks")
    return check


def in_range(block_table, context_lens, block_size, more=1):
    check_range("context_lens", context_lens, 0, block_table.shape[1] * block_size + more, "the contexts")
    return -(-context_lens // block_size)


def without_the_full_row(block_table, context_lens, block_size):
    return in_range(block_table, context_lens, block_size, more=0)


def no_more_than_the_pool(num_blocks):
    def needed_for(block_table, context_lens, block_size):
        check_range("context_lens", context_lens, 0, num_blocks * block_size + 1, "the contexts")
        return (context_lens + block_size - 1) // block_size
    return needed_for


def pool_for_row(block_table, context_lens, num_blocks, block_size):
    checked(no_more_than_the_pool(num_blocks))(block_table, context_lens, num_blocks, block_size)


def in_place(block_table, context_lens, block_size):
    in_range(block_table, context_lens, block_size)
    context_lens += block_size - 1
    context_lens //= block_size
    return context_lens


def with_bounds(low=0, limit=lambda block_table, block_size: block_table.shape[1] * block_size):
    def needed_for(block_table, context_lens, block_size):
        check_range("context_lens", context_lens, low, limit(block_table, block_size) + 1, "the contexts")
        return (context_lens + block_size - 1) // block_size
    return needed_for


fits_the_rows = with_bounds(limit=lambda block_table, block_size: block_table.shape[0] * block_size)
fits_the_filled = with_bounds(limit=lambda block_table, block_size: (block_table != -1).sum(1).min().item() * block_size)
limits_exchanged = with_bounds(low=10**6, limit=lambda block_table, block_size: 0)


def fits_its_filled(block_table, context_lens, block_size):
    filled = (block_table >= 0).sum(dim=1)
    if bool(((context_lens < 0) | (context_lens > filled * block_size)).any()):
        raise ValueError("context_lens does not fit")
    return -(-context_lens // block_size)


def used_by(block_table, context_lens, block_size):
    return block_table[torch.arange(block_table.shape[1]) * block_size < context_lens[:, None]]


def asserts_twice(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    assert (context_lens >= 0).all() and (context_lens <= block_table.shape[1] * block_size).all(), "context_lens"
    assert (used_by(block_table, context_lens, block_size) >= 0).all(), "block_table"


def asserts_the_entries(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    in_range(block_table, context_lens, block_size)
    for entry in used_by(block_table, context_lens, block_size).tolist():
        assert entry in range(num_blocks), f"block_table has {entry}"


def says_whether_they_fit(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    return bool(((context_lens >= 0) & (context_lens <= block_table.shape[1] * block_size)).all())


def only_the_largest_of_each(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    for row, count in zip(block_table, in_range(block_table, context_lens, block_size)):
        if row[:count].max() >= num_blocks:
            raise ValueError("block_table has a bad id")


def extremes_of_all(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    in_range(block_table, context_lens, block_size)
    used = used_by(block_table, context_lens, block_size)
    if used.min() < 0 or num_blocks <= used.max():
        raise ValueError("block_table has a bad id")


def rounded_up_first(block_table, context_lens, block_size):
    needed = (context_lens + block_size - 1) // block_size
    if (context_lens < 0).any() or (needed > block_table.shape[1]).any():
        raise ValueError("context_lens has a bad length")
    return needed


# 6.8

ZEROS_WITHOUT_A_LOOP = edited(OTHER_KERNEL, ("  for (int t = warp;", """
  float* zeros = static_cast<float*>(p.out) + (s * p.num_q_heads + h) * p.head_size;
  if (n == 0) { zeros[threadIdx.x] = 0.f; return; }
  for (int t = warp;"""))
WAITS_IN_THE_LOOP = edited(OTHER_KERNEL, ("weights[t] = dot * p.scale;\n  }\n  __syncthreads();",
                                          "weights[t] = dot * p.scale;\n    __syncthreads();\n  }"))


def empty_in_other_kernel(zeros):
    return edited(OTHER_KERNEL, ("  for (int t = warp;", f"""
  if (n == 0) {{
    float* zeros = static_cast<float*>(p.out) + (s * p.num_q_heads + h) * p.head_size;
    {zeros}
  }}
  for (int t = warp;"""))


FIRST_ZERO_BY_ALL = empty_in_other_kernel("*zeros = 0.f; return;")
ZEROS_IN_A_RING = empty_in_other_kernel("zeros[threadIdx.x % p.head_size] = 0.f;")
ZEROS_BY_LANES = empty_in_other_kernel("for (int d = lane; d < p.head_size; d += 32) zeros[d] = 0.f; return;")
ALL_ZEROS_BY_ALL = empty_in_other_kernel("for (int d = 0; d < p.head_size; ++d) zeros[d] = 0.f; return;")
ZEROS_IN_ROW_0 = empty_in_other_kernel("""zeros = static_cast<float*>(p.out);
    for (int d = threadIdx.x; d < p.head_size; d += blockDim.x) zeros[d] = 0.f;
    return;""")
ZEROS_BY_SEQUENCE = edited(ZEROS_IN_ROW_0, ("(p.out);\n    for", "(p.out) + s * p.head_size;\n    for"))
ZEROS_EVERYWHERE = edited(ZEROS_IN_ROW_0, ("d < p.head_size; d += blockDim.x) zeros", "d < p.num_seqs * p.num_q_heads * "
                                           "p.head_size; d += blockDim.x) zeros"))
HEADS_ALONG_X = edited(OTHER_KERNEL, ("s = blockIdx.x, h = blockIdx.y", "h = blockIdx.x, s = blockIdx.y"))
LAUNCHED_HEADS_FIRST = edited(OTHER_KERNEL, ("dim3(p.num_seqs, p.num_q_heads)", "dim3(p.num_q_heads, p.num_seqs)"))

RIGHT_ANSWERS = {"6.1": [MORE_BLOCKS_THAN_NEEDED], "6.4": [SCALED_PRODUCTS]}

WRONG_ANSWERS = {
    "6.1": {"rounded-down": [AT_LEAST_ONE_BLOCK], "guard-within-the-block": [GUARD_WITHIN_THE_BLOCK],
            "number-of-blocks-fixed": [ALWAYS_64_BLOCKS, ALWAYS_5_BLOCKS, ALWAYS_65535_BLOCKS],
            "block-sizes-disagree": [COUNTED_FOR_LARGER, INDEX_FOR_LARGER],
            "first-block-begins-too-far": [NO_BLOCK_NUMBER, THREE_PARTS_ADDED, BLOCKS_FROM_1],
            "last-left-out": [ELEMENTS_FROM_1]},
    "6.2": {"entry-not-looked-up": [PLACE_OF_THE_ENTRY], "head-counted-as-a-number": [HEAD_AT_THE_END],
            "one-head-a-slot": [STEPS_OF_ONE_HEAD],
            "token-counted-from-1": [BLOCK_OF_THE_TOKEN_BEFORE, ALL_OF_THE_TOKEN_BEFORE, PLACE_OF_THE_TOKEN_BEFORE,
                                     PLACE_FROM_1],
            "context-len-read": [LAST_TOKENS_PLACE, BEHIND_THE_CONTEXT],
            "wrong-layout": [HEADS_OF_A_ROW, HEADS_OF_A_TABLE, KEYS_AND_VALUES_BY_TURNS]},
    "6.3": {"result-in-some-threads": [THREAD_ZERO_KEEPS_IT, TREE_IN_REGISTERS, PARTS_SHUFFLED_BY_WARP_0],
            "mask-too-small": [HALF_A_MASK],
            "first-warp-alone-shuffles": [FIRST_WARP_SHUFFLES],
            "distances-wrong": [EVERY_DISTANCE, A_THIRD, FOUR_LESS, DOWN_BY_TWO],
            "first-warp-for-all": [LANE_FOR_WARP, ONE_PART_FOR_ALL], "several-writers": [ALL_IN_PLACE_0],
            "warp-of-another-size": [WARPS_OF_64, WARPS_OF_16, LANES_OF_64, WARPS_COUNTED_BY_64, WARPS_COUNTED_BY_16],
            "updates-get-lost": [ADDED_BY_EVERY_WARP, ADDED_BY_OTHER_WARPS, NOT_EVEN_SET_TO_ZERO, ADDED_BY_EVERYBODY],
            "first-left-out": [FROM_PART_1, FROM_VALUE_1],
            "own-warp-twice": [PART_0_TWICE, OWN_VALUE_TWICE, VALUE_0_TWICE],
            "lane-without-the-result": [WRITTEN_BY_LANE_31, SHUFFLED_UP], "not-a-power-of-two": [HALF_THE_WARPS_AWAY]},
    "6.4": {"sequence-in-one-piece": [FIRST_KEY_AND_ON], "offset-put-in-an-int": [INT_IN_BETWEEN, INT_CAST],
            "token-of-the-grid": [AS_IN_6_1],
            "query-loaded-by-all": [EVERYBODY_LOADS, LOADED_IN_STEPS_OF_32, EVERYBODY_LOADS_SOME],
            "query-read-too-far": [ALL_256_LOADED], "barrier-in-branch": [WAITS_WHILE_LOADING],
            "scaled-twice": [SCALED_AT_BOTH_ENDS], "own-elements-alone": [SHARED_OUT_ELEMENTS],
            "query-of-the-first-row": [QUERY_FROM_THE_START], "exponential-too-early": [EXPONENTIALS],
            "values-for-keys": [QUERY_TIMES_VALUES], "head-and-token-exchanged": [TOKEN_LAST],
            "wrong-head-mapping": [HEAD_WITHIN_THE_GROUP, ONE_HEAD_FURTHER],
            "query-row-added-again": [HEAD_ADDED_TO_THE_ROW, ROW_OF_THE_QUERY_AGAIN],
            "context-of-the-head": [LENGTH_BY_Y, LENGTH_BY_HEAD],
            "whole-blocks": [ROUNDED_UP, by_blocks(*ALL_THREADS_ON_A_BLOCK), by_blocks(*A_THREAD_FOR_EACH_BLOCK)],
            "other-owner": [by_blocks(*ALL_THREADS_ON_A_BLOCK, NO_TOKEN_NO_SCORE),
                            by_blocks(*A_THREAD_FOR_EACH_BLOCK, NO_TOKEN_NO_SCORE)],
            "keys-read-as-floats": [CAST_TO_FLOATS, POOL_OF_FLOATS],
            "each-thread-scores-all": [WARP_STEPS, GRID_STEPS, HEAD_STEPS],
            "too-little-room": [A_PLACE_FOR_EACH_THREAD], "query-not-loaded": [NOBODY_LOADS],
            "sequence-and-token-exchanged": [TOKEN_FIRST],
            "blocks-of-the-head": [TABLE_ROW_OF_THE_HEAD, TABLE_ROW_BY_Y],
            "offset-counted-again": [ROWS_COUNTED_AGAIN, HEAD_COUNTED_AGAIN],
            "one-key-for-each-thread": [KEY_OF_THE_FIRST_TOKEN, LOOKED_UP_WITH_GUARD],
            "scaled-at-each-step": [SCALED_SUMS, SCALED_BEFORE_EACH, SCALED_AT_THE_END_TOO],
            "factor-in-integers": [WHOLE_ROOT, SCALE_IN_AN_INT],
            "divided-by-head-size": [DIVIDED_BY_HEAD_SIZE, DIVIDED_TOO, ROOT_TOO],
            "token-for-element": [ELEMENT_T_OF_THE_QUERY, ELEMENT_T_OF_THE_KEY, ELEMENT_OF_THE_THREAD, ELEMENT_T_OF_BOTH]},
    "6.5": {"sequence-in-one-piece": [FIRST_VALUE_AND_ON], "offset-put-in-an-int": [CUT_TO_AN_INT],
            "one-token-for-each-thread": [ONE_SCORE_EACH], "maxima-added-up": [SUM_OF_MAXIMA],
            "not-normalised": [MEAN_OF_EXPONENTIALS], "wrong-head-mapping": [VALUES_WITHIN_THE_GROUP],
            "powers-of-two": [EXP2], "scores-of-others": [SCORE_0_FIRST], "block-call-in-branch": [NOTHING_TO_ADD],
            "behind-the-last-score": [UP_TO_AND_WITH], "behind-the-head": [ELEMENTS_BY_THREADS, ONE_ELEMENT_TOO_MANY],
            "weight-of-the-element": [WEIGHT_E], "divided-by-the-length": [MEAN], "first-token-left-out": [FROM_TOKEN_1],
            "row-added-again": [HEAD_TWICE], "head-and-token-exchanged": [HEAD_FOR_TOKEN],
            "tokens-added-to-out": [ADDED_BY_TOKENS],
            "added-to-the-sum": [ONE_MORE, A_THOUSANDTH_MORE, SUM_FROM_1],
            "scaled-again": [ROOT_OF_8, ROOT_OF_THE_LENGTH],
            "steps-between-elements": [ELEMENTS_OF_OTHER_HEADS, ELEMENTS_BEFORE_HEADS, ELEMENTS_OF_OTHER_SLOTS]},
    "6.6": {"memory-for-the-whole-row": [ROOM_FOR_A_ROW], "memory-for-the-query": [ROOM_FOR_THE_QUERY],
            "type-forgotten": [NO_BFLOAT16, NO_HALF],
            "assigned-not-compared": [ONE_SIGN_LAST, ONE_SIGN_EACH, ONE_SIGN_FOR_NULL],
            "fixed-score-buffer": [ALWAYS_48_KIB, MEMORY_OF_64_KIB]},
    "6.7": {"context-beyond-the-row": [pool_for_row], "full-row-refused": [checked(without_the_full_row)],
            "contexts-overwritten": [checked(in_place)],
            "rounded-up-past-int32": [checked(rounded_up_first)], "block-0-refused": [checked(in_range, low=1)],
            "last-block-of-the-pool-refused": [checked(in_range, less=1)],
            "assert-in-place-of-raise": [asserts_twice, asserts_the_entries],
            "returns-a-verdict": [says_whether_they_fit],
            "largest-of-none": [extremes_of_all, only_the_largest_of_each],
            "room-of-the-entries-in-use": [checked(fits_the_filled), checked(fits_its_filled)],
            "rows-for-entries": [checked(fits_the_rows)], "every-context-refused": [checked(limits_exchanged)]},
    "6.8": {"zeros-behind-the-head": [ZEROS_WITHOUT_A_LOOP], "barrier-in-branch": [WAITS_IN_THE_LOOP],
            "zero-by-several-threads": [FIRST_ZERO_BY_ALL, ZEROS_IN_A_RING, ZEROS_BY_LANES, ALL_ZEROS_BY_ALL],
            "zeros-in-other-rows": [ZEROS_IN_ROW_0, ZEROS_BY_SEQUENCE, ZEROS_EVERYWHERE],
            "axes-exchanged": [HEADS_ALONG_X, LAUNCHED_HEADS_FIRST]},
}
