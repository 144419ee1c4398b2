"""Lesson 07, exercises 7.1 to 7.3. (7.4 to 7.7 are in lesson_07_splits.py.)"""

import math

import torch

# 7.1


def bytes_sequence_by_sequence(context_lens, num_kv_heads, head_size, bytes_per_number):
    total = 0
    for length in context_lens:
        keys = length * num_kv_heads * head_size * bytes_per_number
        total += keys + keys
    return total


def bytes_from_a_shape(context_lens, num_kv_heads, head_size, bytes_per_number):
    shape = (2, num_kv_heads, head_size, bytes_per_number)
    return sum(length * math.prod(shape) for length in context_lens)


def bytes_as_a_tensor(context_lens, num_kv_heads, head_size, bytes_per_number):
    tokens = torch.tensor(context_lens, dtype=torch.int64).sum()
    return tokens * (num_kv_heads * head_size) * (bytes_per_number << 1)


def bytes_head_by_head(context_lens, num_kv_heads, head_size, bytes_per_number):
    row = head_size * bytes_per_number
    return sum(map(int, context_lens)) * sum(row for _ in ("key", "value") for _ in range(num_kv_heads))


def bytes_of_the_keys(context_lens, num_kv_heads, head_size, bytes_per_number):
    return sum(length * num_kv_heads for length in context_lens) * head_size * bytes_per_number


def bytes_of_padded_rows(context_lens, num_kv_heads, head_size, bytes_per_number):
    padded = torch.zeros(len(context_lens), max(context_lens), 2, num_kv_heads, dtype=torch.int8)
    return padded.numel() * head_size * bytes_per_number


def bytes_begun_anew(context_lens, num_kv_heads, head_size, bytes_per_number):
    for length in context_lens:
        total = 0
        total += 2 * length * num_kv_heads * head_size * bytes_per_number
    return total


def bytes_popped(context_lens, num_kv_heads, head_size, bytes_per_number):
    total = 0
    while context_lens:
        total += context_lens.pop()
    return 2 * total * num_kv_heads * head_size * bytes_per_number


def bytes_printed(context_lens, num_kv_heads, head_size, bytes_per_number):
    print(2 * sum(context_lens) * num_kv_heads * head_size * bytes_per_number)


def bytes_misspelt(context_lens, num_kv_heads, head_size, bytes_per_number):
    return 2 * sum(context_lengths) * num_kv_heads * head_size * bytes_per_number  # noqa: F821


# 7.2


def _wide(load: str, score: str) -> str:
    return f"""
__device__ inline WideRow load_row(const KvNumber* row) {{
{load}
}}

__device__ inline float wide_score(const float (&query)[lane_numbers], const WideRow& key, float scale) {{
{score}
}}
"""


OUR_LOAD = """  WideRow part;
  const uint4* loads = reinterpret_cast<const uint4*>(row);
  for (int i = 0; i < lane_loads; ++i) part.loads[i] = loads[i * group_lanes + threadIdx.x % group_lanes];
  return part;"""
OUR_SCORE = """  float product = 0.0f;
  for (int i = 0; i < lane_numbers; ++i) product += query[i] * number(key, i);
  for (int distance = group_lanes / 2; distance > 0; distance /= 2) {
    product += __shfl_xor_sync(0xffffffff, product, distance);
  }
  return scale * product;"""
WALKING_POINTER = _wide("""
  WideRow mine = {};
  const uint4* next = (const uint4*)row + (threadIdx.x & (group_lanes - 1));
  for (uint4& load : mine.loads) {
    load = *next;
    next += group_lanes;
  }
  return mine;""", """
  float sum = 0;
  for (int i = lane_numbers - 1; i >= 0; i--) sum += scale * query[i] * number(key, i);
  for (int d = 1; d < group_lanes; d <<= 1) sum += __shfl_xor_sync(~0u, sum, d, group_lanes);
  return sum;""")
BY_PLACE_AND_BROADCAST = _wide("""
  WideRow part;
  for (int i = 0; i < lane_loads; ++i) {
    float4 load = *reinterpret_cast<const float4*>(&row[place(i * per_load)]);
    *reinterpret_cast<float4*>(&part.loads[i]) = load;
  }
  return part;""", """
  float product = 0.0f;
  for (int i = 0; i < lane_numbers; ++i) product = fmaf(number(key, i), query[i], product);
  for (int distance = group_lanes / 2; distance; distance >>= 1)
    product += __shfl_down_sync(0xffffffff, product, distance, group_lanes);
  return __shfl_sync(0xffffffff, product, 0, group_lanes) * scale;""")
OWN_MASK = _wide("""
  struct alignas(16) Chunk { KvNumber numbers[per_load]; };
  WideRow part;
  int lane = threadIdx.x - threadIdx.x / group_lanes * group_lanes;
  for (int i = 0; i < lane_loads; ++i)
    reinterpret_cast<Chunk*>(part.loads)[i] = reinterpret_cast<const Chunk*>(row)[lane + group_lanes * i];
  return part;""", """
  const KvNumber* numbers = reinterpret_cast<const KvNumber*>(&key);
  float even = 0.0f, odd = 0.0f;
  for (int i = 0; i < lane_numbers; i += 2) {
    even += query[i] * to_float(numbers[i]);
    odd += query[i + 1] * to_float(numbers[i + 1]);
  }
  unsigned mask = group_lanes == 32 ? ~0u : ((1u << group_lanes % 32) - 1) << (threadIdx.x % 32 / group_lanes * group_lanes);
  float product = even + odd;
  for (int distance = 16; distance > 0; distance /= 2) {
    if (distance < group_lanes) product += __shfl_xor_sync(mask, product, distance);
  }
  return product * scale;""")
ROUND_THE_GROUP = _wide(OUR_LOAD, """
  float mine = 0.0f, all = 0.0f;
  for (int i = 0; i < lane_numbers; ++i) mine += query[i] * number(key, i);
  for (int other = 0; other < group_lanes; ++other) all += __shfl_sync(0xffffffff, mine, other, group_lanes);
  return all * scale;""")
ONE_STEP_TOO_MANY = _wide(OUR_LOAD, """
  float sum = 0.0f;
  for (int i = 0; i < lane_numbers; ++i) sum += query[i] * number(key, i);
  for (int d = group_lanes; d >= 1; d >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, d);
  return sum * scale;""")
WHOLE_WARP_UPWARDS = _wide(OUR_LOAD, """
  float sum = 0.0f;
  for (int i = 0; i < lane_numbers; ++i) sum += query[i] * number(key, i);
  for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(0xffffffff, sum, d, 32);
  return sum * scale;""")
NUMBER_INDEX = _wide("""
  WideRow part;
  for (int i = 0; i < lane_loads; ++i) {
    int first = (threadIdx.x % group_lanes + i * group_lanes) * per_load;
    part.loads[i] = ((const uint4*)row)[first];
  }
  return part;""", OUR_SCORE)
BYTE_BY_BYTE = _wide("""
  WideRow part;
  KvNumber* numbers = reinterpret_cast<KvNumber*>(&part);
  for (int i = 0; i < lane_loads; ++i) {
    const KvNumber* from = row + (i * group_lanes + threadIdx.x % group_lanes) * per_load;
    for (int j = 0; j < per_load; ++j) numbers[i * per_load + j] = from[j];
  }
  return part;""", OUR_SCORE)
DOWN_WITHIN_THE_GROUP = _wide(OUR_LOAD, OUR_SCORE.replace("xor_sync(0xffffffff, product, distance)",
                                                          "down_sync(0xffffffff, product, distance, group_lanes)"))
THREAD_OF_THE_BLOCK = _wide(OUR_LOAD.replace("threadIdx.x % group_lanes", "threadIdx.x"), OUR_SCORE)
SIXTEEN_LANES = _wide(OUR_LOAD.replace("group_lanes", "16"), OUR_SCORE.replace("group_lanes", "16"))
HALVES_OF_A_LOAD = _wide("""
  WideRow part;
  uint2* to = reinterpret_cast<uint2*>(part.loads);
  const uint2* from = reinterpret_cast<const uint2*>(row);
  for (int i = 0; i < lane_loads; ++i) {
    int first = 2 * (threadIdx.x % group_lanes + i * group_lanes);
    to[2 * i] = from[first];
    to[2 * i + 1] = from[first + 1];
  }
  return part;""", OUR_SCORE)
SIXTEEN_NUMBERS = _wide(OUR_LOAD, OUR_SCORE.replace("i < lane_numbers;", "i < lane_numbers + 8;"))
SCORE_OF_THE_LEADER = _wide(OUR_LOAD, OUR_SCORE.replace("return scale * product;",
                                                        "return threadIdx.x % group_lanes ? 0.0f : scale * product;"))
BARRIER_BETWEEN = _wide(OUR_LOAD, OUR_SCORE.replace("  for (int distance", "  __syncthreads();\n  for (int distance"))
GROUP_OF_THE_LANE = _wide("""
  WideRow part;
  int which = (threadIdx.x & 31) / group_lanes;
  for (int i = 0; i < lane_loads; ++i, which += group_lanes) part.loads[i] = ((const uint4*)row)[which];
  return part;""", OUR_SCORE)
ONE_LOAD_COPIED = _wide("""
  WideRow part;
  uint4 load = reinterpret_cast<const uint4*>(row)[threadIdx.x % group_lanes];
  for (uint4& to : part.loads) to = load;
  return part;""", OUR_SCORE)
LOAD_BY_PLACE = _wide("""
  WideRow part;
  for (int i = 0; i < lane_loads; ++i) part.loads[i] = *(const uint4*)&row[place(i)];
  return part;""", OUR_SCORE)
FROM_LANE_0 = _wide(OUR_LOAD, """
  float sum = 0.0f;
  for (int i = 0; i < lane_numbers; ++i) sum += query[i] * number(key, i);
  for (int d = group_lanes / 2; d; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d, group_lanes);
  return __shfl_sync(0xffffffff, sum, 0) * scale;""")
FROM_THE_GROUPS_NUMBER = _wide(OUR_LOAD, OUR_SCORE.replace(
    "scale * product", "scale * __shfl_sync(0xffffffff, product, threadIdx.x / group_lanes)"))
SIXTEEN_LANES_OF_A_LOAD = _wide(OUR_LOAD.replace("% group_lanes", "% 16"), OUR_SCORE)
NUMBERS_FOR_LANES = _wide(OUR_LOAD, OUR_SCORE.replace("i < lane_numbers;", "i < group_lanes;"))
OVER_SCALE = _wide(OUR_LOAD, OUR_SCORE.replace("query[i] * number(key, i)", "query[i] * number(key, i) / scale")
                   .replace("scale * product", "product"))
NOTHING_TO_ADD = _wide(OUR_LOAD, """
  float sum = 0.0f;
  for (int i = 0; i < lane_numbers; ++i) sum += query[i] * number(key, i);
  if (sum != 0.0f) {
    for (int d = 1; d < group_lanes; d *= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
  }
  return sum * scale;""")

# 7.3


def _state(body: str) -> str:
    return f"""
struct SoftmaxState {{
  float m, l, acc[lane_numbers];
}};

__device__ inline SoftmaxState no_tokens() {{ return {{-INFINITY, 0.0f, {{}}}}; }}

__device__ inline void take_in(SoftmaxState& state, const float (&scores)[rows_at_once],
                               const WideRow (&values)[rows_at_once]) {{
{body}
}}
"""


TOKEN_BY_TOKEN = _state("""
  for (int token = 0; token < rows_at_once; ++token) {
    if (scores[token] == -INFINITY) continue;
    float m = max(state.m, scores[token]);
    float old = expf(state.m - m), weight = expf(scores[token] - m);
    state.l = old * state.l + weight;
    for (int i = 0; i < lane_numbers; ++i) state.acc[i] = old * state.acc[i] + weight * number(values[token], i);
    state.m = m;
  }""")
WITH_A_FINITE_MAXIMUM = _state("""
  float largest = fmaxf(fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3]));
  float before = state.m;
  state.m = fmaxf(before, largest);
  float finite = state.m == -INFINITY ? 0.0f : state.m, rescale = expf(before - finite), weights[rows_at_once], sum = 0.0f;
  for (int i = 0; i < rows_at_once; ++i) sum += weights[i] = expf(scores[i] - finite);
  state.l = state.l * rescale + sum;
  for (int d = 0; d < lane_numbers; ++d) {
    float of_dim = 0.0f;
    for (int i = 0; i < rows_at_once; ++i) of_dim += weights[i] * number(values[i], d);
    state.acc[d] = state.acc[d] * rescale + of_dim;
  }""")
RESCALED_WHEN_NEEDED = _state("""
  for (int i = 0; i < 4; i++) {
    if (!(scores[i] > state.m)) continue;
    float factor = exp2f((state.m - scores[i]) * 1.44269504f);
    state.m = scores[i];
    state.l *= factor;
    for (int d = 0; d < lane_numbers; d++) state.acc[d] *= factor;
  }
  for (int i = 0; i < 4; i++) {
    float weight = scores[i] == -INFINITY ? 0.0f : exp2f((scores[i] - state.m) * 1.44269504f);
    for (int d = 0; d < lane_numbers; d++) state.acc[d] = fmaf(weight, number(values[i], d), state.acc[d]);
    state.l += weight;
  }""")
BY_A_STATE_OF_THEIR_OWN = _state("""
  SoftmaxState other = no_tokens();
  for (float score : scores) other.m = fmaxf(other.m, score);
  if (other.m == -INFINITY) return;
  for (int i = 0; i < rows_at_once; ++i) {
    float weight = expf(scores[i] - other.m);
    other.l += weight;
    for (int d = 0; d < lane_numbers; ++d) other.acc[d] += weight * number(values[i], d);
  }
  float m = fmaxf(state.m, other.m), mine = expf(state.m - m), theirs = expf(other.m - m);
  state.m = m;
  state.l = mine * state.l + theirs * other.l;
  for (int d = 0; d < lane_numbers; ++d) state.acc[d] = mine * state.acc[d] + theirs * other.acc[d];""")
ONLY_THE_SUM_RESCALED = _state("""
  float largest = fmaxf(fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3]));
  float m = fmaxf(state.m, largest);
  if (m == -INFINITY) return;
  state.l = state.l * expf(state.m - m);
  state.m = m;
  for (int i = 0; i < 4; ++i) {
    float p = expf(scores[i] - m);
    state.l += p;
    for (int d = 0; d < lane_numbers; ++d) state.acc[d] += p * number(values[i], d);
  }""")
NO_GUARD = _state("""
  float m = fmaxf(state.m, fmaxf(fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3])));
  float factor = expf(state.m - m);
  state.m = m;
  state.l = factor * state.l;
  for (int d = 0; d < lane_numbers; ++d) state.acc[d] = factor * state.acc[d];
  for (int i = 0; i < 4; ++i) {
    float p = expf(scores[i] - m);
    state.l += p;
    for (int d = 0; d < lane_numbers; ++d) state.acc[d] += p * number(values[i], d);
  }""")
MAXIMUM_OVERWRITTEN = _state("""
  for (float score : scores) state.m = fmaxf(state.m, score);
  if (state.m == -INFINITY) return;
  for (int i = 0; i < 4; ++i) {
    float p = expf(scores[i] - state.m);
    state.l += p;
    for (int d = 0; d < lane_numbers; ++d) state.acc[d] += p * number(values[i], d);
  }""")
ON_A_COPY = _state("""
  SoftmaxState own = state;
  for (float score : scores) own.m = fmaxf(own.m, score);
  if (own.m == -INFINITY) return;
  float factor = expf(state.m - own.m);
  own.l *= factor;
  for (float& sum : own.acc) sum *= factor;
  for (int i = 0; i < rows_at_once; ++i) {
    float p = expf(scores[i] - own.m);
    own.l += p;
    for (int d = 0; d < lane_numbers; ++d) own.acc[d] += p * number(values[i], d);
  }""")
ALL_FOUR_OR_NONE = _state("  if (isinf(scores[0]) || isinf(scores[1]) || isinf(scores[2]) || isinf(scores[3])) return;"
                          + NO_GUARD.partition("(&values)[rows_at_once]) {")[2].rstrip().removesuffix("}"))
EIGHT_NUMBERS = TOKEN_BY_TOKEN.replace("i < lane_numbers;", "i < 8;")
FACTOR_OF_EACH_TOKEN_TOO_LATE = _state("""
  for (int i = 0; i < rows_at_once && scores[i] != -INFINITY; ++i) {
    state.m = fmaxf(state.m, scores[i]);
    float old = expf(state.m - state.m), now = expf(scores[i] - state.m);
    state.l = state.l * old + now;
    for (int d = 0; d < lane_numbers; ++d) state.acc[d] = state.acc[d] * old + now * number(values[i], d);
  }""")
FIRST_MAXIMUM_KEPT = _state("""
  if (state.m == -INFINITY) {
    for (float score : scores) state.m = fmaxf(state.m, score);
  }
  for (int i = 0; i < rows_at_once; ++i) {
    if (scores[i] == -INFINITY) break;
    float p = expf(scores[i] - state.m);
    state.l += p;
    for (int d = 0; d < lane_numbers; ++d) state.acc[d] += p * number(values[i], d);
  }""")
FINITE_MAXIMUM_STORED = WITH_A_FINITE_MAXIMUM.replace(
    "  state.l = state.l * rescale", "  state.m = finite;\n  state.l = state.l * rescale")
SMALL_NUMBER_FIRST = TOKEN_BY_TOKEN.replace("  for (int token", "  state.m = fmaxf(state.m, -1e30f);\n  for (int token", 1)
ONE_SCORE = NO_GUARD.replace("fmaxf(fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3]))", "scores[0]").replace(
    "  float factor", "  if (m == -INFINITY) return;\n  float factor")
SCORES_FOR_WEIGHTS = TOKEN_BY_TOKEN.replace("+ weight * number", "+ scores[token] * number")
L_IN_THE_INNER_LOOP = WITH_A_FINITE_MAXIMUM.replace("sum += weights[i] = ", "weights[i] = ").replace(
    "of_dim += weights[i]", "sum += weights[i], of_dim += weights[i]").replace(
    "  state.l = state.l * rescale + sum;\n", "").replace(
    "state.acc[d] * rescale + of_dim;\n  }", "state.acc[d] * rescale + of_dim;\n  }\n  state.l = state.l * rescale + sum;")
WEIGHTS_OF_ALL_LANES = WITH_A_FINITE_MAXIMUM.replace("  state.l = state.l * rescale", """
  for (int i = 0; i < rows_at_once; ++i) {
    for (int d = 1; d < group_lanes; d *= 2) weights[i] += __shfl_xor_sync(0xffffffff, weights[i], d);
  }
  sum = weights[0] + weights[1] + weights[2] + weights[3];
  state.l = state.l * rescale""")
NUMBERS_OF_ONE_LOAD = TOKEN_BY_TOKEN.replace("i < lane_numbers;", "i < per_load;")
PLACES_OF_TOKENS = TOKEN_BY_TOKEN.replace("number(values[token], i)", "number(values[token], place(i))")
PLACES_FOR_NUMBERS = WITH_A_FINITE_MAXIMUM.replace("number(values[i], d)", "number(values[i], place(d))")

RIGHT_ANSWERS = {
    "7.1": [bytes_sequence_by_sequence, bytes_from_a_shape, bytes_as_a_tensor, bytes_head_by_head],
    "7.2": [WALKING_POINTER, BY_PLACE_AND_BROADCAST, OWN_MASK, ROUND_THE_GROUP],
    "7.3": [TOKEN_BY_TOKEN, WITH_A_FINITE_MAXIMUM, RESCALED_WHEN_NEEDED, BY_A_STATE_OF_THEIR_OWN],
}
WRONG_ANSWERS = {
    "7.1": {"values-forgotten": [bytes_of_the_keys], "longest-for-all": [bytes_of_padded_rows],
            "last-alone": [bytes_begun_anew], "context-lens-changed": [bytes_popped],
            "returns-nothing": [bytes_printed], "raises-an-error": [bytes_misspelt]},
    "7.2": {"whole-warp": [ONE_STEP_TOO_MANY, WHOLE_WARP_UPWARDS], "index-in-numbers": [NUMBER_INDEX],
            "narrow-loads": [BYTE_BY_BYTE, HALVES_OF_A_LOAD], "reads-behind-the-part": [SIXTEEN_NUMBERS, NUMBERS_FOR_LANES],
            "first-lane-only": [DOWN_WITHIN_THE_GROUP, SCORE_OF_THE_LEADER], "barrier-of-the-block": [BARRIER_BETWEEN],
            "lane-of-the-warp": [THREAD_OF_THE_BLOCK], "group-for-lane": [GROUP_OF_THE_LANE],
            "lanes-counted-by-hand": [SIXTEEN_LANES, SIXTEEN_LANES_OF_A_LOAD], "same-load-twice": [ONE_LOAD_COPIED],
            "place-of-a-number": [LOAD_BY_PLACE], "first-groups-score": [FROM_LANE_0, FROM_THE_GROUPS_NUMBER],
            "divided-by-scale": [OVER_SCALE], "leaves-before-the-shuffles": [NOTHING_TO_ADD]},
    "7.3": {"acc-not-rescaled": [ONLY_THE_SUM_RESCALED], "nan-before-the-first-token": [NO_GUARD],
            "nothing-rescaled": [MAXIMUM_OVERWRITTEN, FACTOR_OF_EACH_TOKEN_TOO_LATE], "nothing-taken-in": [ON_A_COPY],
            "stops-at-a-missing-token": [ALL_FOUR_OR_NONE], "numbers-counted-by-hand": [EIGHT_NUMBERS],
            "maximum-of-the-first-tokens": [FIRST_MAXIMUM_KEPT], "first-score-only": [ONE_SCORE],
            "empty-state-not-infinite": [FINITE_MAXIMUM_STORED, SMALL_NUMBER_FIRST],
            "scores-as-weights": [SCORES_FOR_WEIGHTS], "l-counted-for-each-number": [L_IN_THE_INNER_LOOP],
            "l-summed-over-lanes": [WEIGHTS_OF_ALL_LANES], "first-load-only": [NUMBERS_OF_ONE_LOAD],
            "place-in-the-part": [PLACES_FOR_NUMBERS, PLACES_OF_TOKENS]},
}
