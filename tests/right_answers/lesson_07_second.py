"""Lesson 07, as a second learner wrote it."""

import math

from right_answers.lesson_07_splits import combined, edited, staged, written

from paged_attention.splits import SPLIT_COST


def all_as_long_as_the_first(context_lens, num_kv_heads, head_size, bytes_per_number):
    first, *_ = context_lens
    return 2 * num_kv_heads * head_size * bytes_per_number * first * len(context_lens)


def a_mean_sequence(context_lens, num_kv_heads, head_size, bytes_per_number):
    mean = sum(context_lens) / len(context_lens)
    return int(mean) * 2 * num_kv_heads * head_size * bytes_per_number


def each_length_once(context_lens, num_kv_heads, head_size, bytes_per_number):
    return 2 * bytes_per_number * head_size * num_kv_heads * sum({length for length in context_lens})


def until_an_empty_one(context_lens, num_kv_heads, head_size, bytes_per_number):
    total = 0
    for length in context_lens:
        if length == 0:
            break
        total += length * num_kv_heads * head_size * bytes_per_number
    return total * 2


def all_in_one_product(context_lens, num_kv_heads, head_size, bytes_per_number):
    return math.prod([2, *context_lens, num_kv_heads, head_size, bytes_per_number])


def the_width_in_brackets(context_lens, num_kv_heads, head_size, bytes_per_number):
    numbers = num_kv_heads * head_size * sum(context_lens)
    return (numbers + bytes_per_number) + (numbers + bytes_per_number)


def heads_and_size_as_one_sum(context_lens, num_kv_heads, head_size, bytes_per_number):
    of_a_token = (num_kv_heads + head_size) * bytes_per_number * 2
    return sum(length * of_a_token for length in context_lens)


def with_the_block_table(context_lens, num_kv_heads, head_size, bytes_per_number):
    total = 0
    for length in context_lens:
        total += 2 * length * num_kv_heads * head_size * bytes_per_number
        total += math.ceil(length / 16) * 4
    return total


# 7.2

GROUP_SUMS = """
__device__ inline WideRow load_row(const KvNumber* row) {
  WideRow part = {};
  const uint4* of_lane = (const uint4*)row + threadIdx.x % group_lanes;
  for (auto& load : part.loads) { load = *of_lane; of_lane += group_lanes; }
  return part;
}

__device__ inline float wide_score(const float (&query)[lane_numbers], const WideRow& key, float scale) {
  float sum = 0;
  for (int i = lane_numbers; i-- > 0;) sum = fmaf(query[i], number(key, i), sum);
  for (int lanes = 1; lanes < group_lanes; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  return sum * scale;
}
"""
SHUFFLES = "for (int lanes = 1; lanes < group_lanes; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);\n  return sum"
ADDED_IN_SHARED_MEMORY = """
  __shared__ float sums[num_groups];
  float& all = sums[threadIdx.x / group_lanes];
  if (threadIdx.x % group_lanes == 0) all = 0.0f;
  __syncwarp();
  atomicAdd(&all, sum);
  __syncwarp();
"""
WAITS_AFTER_READING = f"{ADDED_IN_SHARED_MEMORY}  sum = all;\n  __syncwarp();\n  return sum"
LOADS = "for (auto& load : part.loads) { load = *of_lane; of_lane += group_lanes; }"
NO_START = ("WideRow part = {};", "WideRow part;")
SECOND_IF_THERE = "part.loads[0] = *of_lane;\n  if (lane_loads > 1) part.loads[lane_loads - 1] = of_lane[group_lanes];"


# 7.3

def taken_in(body, *more):
    return written("ladder/softmax_state.cuh", "7.3", body, *more)


TOKEN_BY_TOKEN = """
  for (int t = 0; t < rows_at_once && scores[t] != -INFINITY; ++t) {
    float m = fmaxf(state.m, scores[t]);
    float old = expf(state.m - m), mine = expf(scores[t] - m);
    state.m = m;
    state.l = state.l * old + mine;
    for (int j = 0; j < lane_numbers; ++j) state.acc[j] = state.acc[j] * old + mine * number(values[t], j);
  }
"""
FOUR_AT_ONCE = """
  float most = fmaxf(fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3]));
  if (most == -INFINITY) return;
  most = fmaxf(most, state.m);
  float old = __expf(state.m - most), w[4];
  for (int t = 0; t < 4; ++t) w[t] = __expf(scores[t] - most);
  state.m = most;
  state.l = old * state.l + (w[0] + w[1] + w[2] + w[3]);
  for (int j = 0; j < lane_numbers; ++j) {
    float sum = 0.0f;
    for (int t = 0; t < 4; ++t) sum += w[t] * number(values[t], j);
    state.acc[j] = old * state.acc[j] + sum;
  }
"""
LARGER_ALONE = """
  for (int t = 0; t < rows_at_once; ++t) {
    if (scores[t] > state.m) {
      float old = __expf(state.m - scores[t]);
      state.m = scores[t];
      state.l = old * state.l + 1.0f;
      for (int j = 0; j < lane_numbers; ++j) state.acc[j] = old * state.acc[j] + number(values[t], j);
    }
  }
"""
PLAIN_SUMS = """
  for (int t = 0; t < rows_at_once; ++t) {
    state.l += __expf(scores[t]);
    for (int j = 0; j < lane_numbers; ++j) state.acc[j] += __expf(scores[t]) * number(values[t], j);
  }
"""
ALWAYS_DIVIDED = edited(FOUR_AT_ONCE, ("  state.l = old", "  float l = old * state.l;\n  state.l = old"), (
    "old * state.acc[j] + sum;", "(l * state.acc[j] + sum) / state.l;"))
MULTIPLIED_BY_THE_NEW_L = edited(FOUR_AT_ONCE, ("  state.l = old", "  float l = old * state.l;\n  state.l = old"), (
    "old * state.acc[j] + sum;", "(old * l * state.acc[j] + sum) / state.l;"))
SUM_OVER_LANES = """
    for (int d = 1; d < group_lanes; d *= 2) sum += __shfl_xor_sync(0xffffffff, sum, d, group_lanes);
    state.acc[j] = old"""


# 7.4

TURNS = """
  for (int t = 0; t < num_stages; ++t) {
    if (t < num_tiles) start_copies(copies, stages[t], tiles + t * tile_floats);
    copies.close_group();
  }
  for (int t = 0; t < num_tiles; ++t) {
    copies.wait<3>();
    __syncwarp();
    Stage& stage = stages[t % num_stages];
    sum += add_up(stage);
    __syncwarp();
    if (t + num_stages < num_tiles) start_copies(copies, stage, tiles + (t + num_stages) * tile_floats);
    copies.close_group();
  }
"""
START, CLOSE = TURNS.splitlines(keepends=True)[-3:-1]
THREE_AHEAD = """
  for (int t = 0; t < num_stages - 1; ++t) {
    if (t < num_tiles) start_copies(copies, stages[t], tiles + t * tile_floats);
    copies.close_group();
  }
  for (int t = 0; t < num_tiles; ++t) {
    copies.wait<num_stages - 2>();
    __syncwarp();
    int next = t + num_stages - 1;
    if (next < num_tiles) start_copies(copies, stages[next % num_stages], tiles + next * tile_floats);
    copies.close_group();
    sum += add_up(stages[t % num_stages]);
  }
"""


# 7.5

IN_TURN = """
  int row = gridDim.y * blockIdx.x + blockIdx.y, rows = gridDim.x * gridDim.y;
  float most = -INFINITY, top = 0, bottom = 0;
  for (int s = 0; s < num_splits; ++s) most = fmaxf(most, part_m[s * rows + row]);
  for (int s = 0; s < num_splits; ++s) {
    int part = s * rows + row;
    if (part_l[part] == 0) continue;
    float w = expf(part_m[part] - most) * part_l[part];
    bottom += w;
    top += w * part_o[int64_t(part) * head_size + threadIdx.x];
  }
  out[int64_t(row) * head_size + threadIdx.x] = from_float<Number>(bottom == 0 ? 0.0f : top / bottom);
"""
WEIGHT = "expf(part_m[part] - most) * part_l[part]"
BY_PAIRS = """
  int row = gridDim.y * blockIdx.x + blockIdx.y, rows = gridDim.x * gridDim.y;
  float most = part_m[row], o = part_o[int64_t(row) * head_size + threadIdx.x];
  for (int part = row + rows; part < num_splits * rows; part += rows) {
    if (part_l[part] == 0) continue;
    float both = fmaxf(most, part_m[part]);
    float a = expf(most - both), b = expf(part_m[part] - both);
    o = (a * o + b * part_o[int64_t(part) * head_size + threadIdx.x]) / (a + b);
    most = both;
  }
  out[int64_t(row) * head_size + threadIdx.x] = from_float<Number>(o);
"""
WEIGHTS_IN_SHARED_MEMORY = """
  __shared__ float weights[1024];
  int row = gridDim.y * blockIdx.x + blockIdx.y, rows = gridDim.x * gridDim.y;
  float most = -INFINITY, top = 0, bottom = 0;
  for (int s = 0; s < num_splits; ++s) most = fmaxf(most, part_m[s * rows + row]);
  for (int s = threadIdx.x; s < num_splits; s += head_size) {
    weights[s] = part_l[s * rows + row] == 0 ? 0.0f : expf(part_m[s * rows + row] - most) * part_l[s * rows + row];
  }
  __syncthreads();
  for (int s = 0; s < num_splits; ++s) {
    bottom += weights[s];
    top += weights[s] * part_o[int64_t(s * rows + row) * head_size + threadIdx.x];
  }
  out[int64_t(row) * head_size + threadIdx.x] = from_float<Number>(bottom == 0 ? 0.0f : top / bottom);
"""


# 7.6
def splits_by_making_each_block(num_rows, num_tiles, num_multiprocessors):
    def run(num_splits):
        blocks = [num_tiles // num_splits + (split < num_tiles % num_splits) for split in range(num_splits)] * num_rows
        waves = [blocks[first:first + num_multiprocessors] for first in range(0, len(blocks), num_multiprocessors)]
        return len(waves) * (max(blocks) + SPLIT_COST)
    return min((run(num_splits), num_splits) for num_splits in range(1, num_tiles + 1))[1]


def least_time(time):
    def answer(num_rows, num_tiles, num_multiprocessors):
        times = [time(num_rows, num_tiles, num_multiprocessors, number) for number in range(1, num_tiles + 1)]
        return 1 + times.index(min(times))
    return answer


def cost_within_the_brackets(rows, tiles, sms, s):
    return math.ceil(rows * s / sms) * math.ceil((tiles + SPLIT_COST) / s)


def every_block_pays(rows, tiles, sms, s):
    blocks = rows * s
    return math.ceil(blocks / sms) * math.ceil(tiles / s) + blocks * SPLIT_COST


def tiles_of_the_whole_batch(rows, tiles, sms, s):
    return math.ceil(rows * s / sms) * math.ceil(rows * tiles / s) + SPLIT_COST


def waves_of_tiles(rows, tiles, sms, s):
    longest = math.ceil(tiles / s)
    return math.ceil(tiles * s / sms) * (longest + SPLIT_COST)


def tokens_of_a_split(rows, tiles, sms, s):
    tokens = math.ceil(16 * tiles / s)
    return (SPLIT_COST + tokens) * math.ceil(rows * s / sms)


def up_to_the_number_of_rows(num_rows, num_tiles, num_multiprocessors):
    return min(range(1, num_rows + 1), key=lambda s: math.ceil(num_rows * s / num_multiprocessors)
               * (math.ceil(num_tiles / s) + SPLIT_COST))


def whole_rows_in_each_wave(rows, tiles, sms, s):
    return math.ceil(rows * s / sms) * (tiles + SPLIT_COST)


# 7.7

def walked(next_row=lambda left, rest: left >= rest, end_of=lambda total, b, n: total * (b + 1) // n):
    """A walk along the line, with a row left as soon as `next_row` says so."""
    def answer(num_tiles, num_blocks):
        total, row, tile, shares = sum(num_tiles), 0, 0, []
        for b in range(num_blocks):
            left, share = end_of(total, b, num_blocks) - total * b // num_blocks, []
            while row < len(num_tiles) and next_row(left, num_tiles[row] - tile):
                share.append((row, tile, num_tiles[row]))
                left, row, tile = left - num_tiles[row] + tile, row + 1, 0
            if row < len(num_tiles):
                share.append((row, tile, tile + left))
                tile += left
            shares.append(share)
        return shares
    return answer


def from_a_list_of_tiles(begin_of=lambda total, b, n: total * b // n, end_of=lambda total, b, n: total * (b + 1) // n):
    def answer(num_tiles, num_blocks):
        line = [(row, tile) for row, length in enumerate(num_tiles) for tile in range(length)]
        shares = []
        for b in range(num_blocks):
            mine = line[begin_of(len(line), b, num_blocks) : max(0, end_of(len(line), b, num_blocks))]
            rows = sorted({row for row, _ in mine})
            shares.append([(row, min(tile for r, tile in mine if r == row), max(tile for r, tile in mine if r == row) + 1)
                           for row in rows])
        return shares
    return answer


def an_empty_piece_for_no_tiles(num_tiles, num_blocks):
    return [share or [(0, 0, 0)] for share in from_a_list_of_tiles()(num_tiles, num_blocks)]


def places_in_the_share(num_tiles, num_blocks):
    shares = []
    for share in from_a_list_of_tiles()(num_tiles, num_blocks):
        pieces, place = [], 0
        for row, first, end in share:
            pieces.append((row, place, place + end - first))
            place += end - first
        shares.append(pieces)
    return shares


def a_new_row_for_each_block(num_tiles, num_blocks):
    rows, total, shares = iter(enumerate(num_tiles)), sum(num_tiles), []
    for b in range(num_blocks):
        size, share = total * (b + 1) // num_blocks - total * b // num_blocks, []
        while size > 0:
            row, length = next(rows, (None, 0))
            if row is None:
                break
            share.append((row, 0, min(size, length)))
            size -= length
        shares.append(share)
    return shares


def a_list_for_each_row(num_tiles, num_blocks):
    rows = [[] for _ in num_tiles]
    for b, share in enumerate(from_a_list_of_tiles()(num_tiles, num_blocks)):
        for row, first, end in share:
            rows[row].append((b, first, end))
    return rows


def the_last_piece_first(num_tiles, num_blocks):
    shares = []
    for share in from_a_list_of_tiles()(num_tiles, num_blocks):
        pieces = []
        for piece in share:
            pieces.insert(0, piece)
        shares.append(pieces)
    return shares


def the_longest_piece_first(num_tiles, num_blocks):
    return [sorted(share, key=lambda piece: piece[1] - piece[2])
            for share in from_a_list_of_tiles()(num_tiles, num_blocks)]


def the_longest_row_first(num_tiles, num_blocks):
    rows = sorted(enumerate(num_tiles), key=lambda row: row[1], reverse=True)
    shares = from_a_list_of_tiles()([length for _, length in rows], num_blocks)
    return [[(rows[place][0], first, end) for place, first, end in share] for share in shares]


def sorted_lengths(num_tiles, num_blocks):
    return from_a_list_of_tiles()(sorted(num_tiles), num_blocks)


RIGHT_ANSWERS = {
    "7.2": [GROUP_SUMS, edited(GROUP_SUMS, (SHUFFLES, WAITS_AFTER_READING)),
            edited(GROUP_SUMS, NO_START, (LOADS, SECOND_IF_THERE))],
    "7.3": [taken_in(TOKEN_BY_TOKEN), taken_in(FOUR_AT_ONCE)],
    "7.4": [staged(TURNS), staged(THREE_AHEAD)],
    "7.5": [combined(IN_TURN), combined(WEIGHTS_IN_SHARED_MEMORY)],
    "7.6": [splits_by_making_each_block],
    "7.7": [from_a_list_of_tiles()],
}
WRONG_ANSWERS = {
    "7.1": {"first-for-all": [all_as_long_as_the_first], "mean-alone": [a_mean_sequence],
            "equal-lengths-once": [each_length_once], "stops-at-an-empty-context": [until_an_empty_one],
            "lengths-multiplied": [all_in_one_product],
            "factors-added": [the_width_in_brackets, heads_and_size_as_one_sum],
            "block-table-counted": [with_the_block_table]},
    "7.2": {
        "first-load-only": [edited(GROUP_SUMS, (LOADS, "part.loads[0] = *of_lane;")),
                            edited(GROUP_SUMS, NO_START, (LOADS, "part.loads[0] = *of_lane;"))],
        "second-load-too-near": [edited(GROUP_SUMS, (LOADS, "for (auto& load : part.loads) load = *of_lane++;")),
                                 edited(GROUP_SUMS, ("of_lane += group_lanes;", "of_lane += per_load;"))],
        "not-there-for-the-others": [edited(GROUP_SUMS, (SHUFFLES, f"{ADDED_IN_SHARED_MEMORY}  return all"))],
        "mask-of-whoever-is-there": [edited(GROUP_SUMS, ("~0u", "__activemask()"))],
        "scaled-at-each-step": [edited(GROUP_SUMS, ("sum += __shfl", "sum += scale * __shfl")),
                                edited(GROUP_SUMS, ("sum += __shfl_xor_sync(~0u, sum, lanes);",
                                                    "sum = (sum + __shfl_xor_sync(~0u, sum, lanes)) * scale;"))],
        "divided-by-a-count": [edited(GROUP_SUMS, ("return sum * scale", "return sum / group_lanes * scale")),
                               edited(GROUP_SUMS, ("sum += __shfl_xor_sync(~0u, sum, lanes);",
                                                   "sum = (sum + __shfl_xor_sync(~0u, sum, lanes)) / 2;"))],
        "bits-taken-as-numbers": [edited(GROUP_SUMS, ("number(key, i)", f"(({type} const*)key.loads)[i]"))
                                  for type in ("unsigned short", "unsigned", "float")],
    },
    "7.3": {
        "acc-not-rescaled": [taken_in(TOKEN_BY_TOKEN, ("state.acc[j] * old + mine", "state.acc[j] + mine"))],
        "l-not-rescaled": [taken_in(TOKEN_BY_TOKEN, ("state.l * old + mine", "state.l + mine"))],
        "old-sums-forgotten": [taken_in(FOUR_AT_ONCE, ("old * state.l + (", "(")),
                               taken_in(FOUR_AT_ONCE, ("old * state.acc[j] + sum", "sum"))],
        "max-not-subtracted": [taken_in(PLAIN_SUMS)],
        "quotient-of-exponentials": [taken_in(FOUR_AT_ONCE, ("__expf(state.m - most)", "__expf(state.m) / __expf(most)"),
                                              ("__expf(scores[t] - most)", "__expf(scores[t]) / __expf(most)"))],
        "powers-of-two": [taken_in(TOKEN_BY_TOKEN, ("expf(state.m - m)", "exp2f(state.m - m)"),
                                   ("expf(scores[t] - m)", "exp2f(scores[t] - m)"))],
        "smaller-scores-left-out": [taken_in(LARGER_ALONE)],
        "acc-summed-over-lanes": [taken_in(FOUR_AT_ONCE, ("\n    state.acc[j] = old", SUM_OVER_LANES))],
        "divided-too-early": [taken_in(ALWAYS_DIVIDED), taken_in(MULTIPLIED_BY_THE_NEW_L)],
        "negative-scores-left-out": [taken_in(TOKEN_BY_TOKEN, ("scores[t] != -INFINITY; ++t) {",
                                                               "true; ++t) {\n    if (scores[t] < 0.0f) continue;"))],
        "state-thrown-away": [taken_in(FOUR_AT_ONCE, ("if (most == -INFINITY) return;",
                                                      "if (most == -INFINITY) { state = no_tokens(); return; }"))],
        "first-value-for-all": [taken_in(FOUR_AT_ONCE, ("values[t]", "values[0]"))],
        "weights-in-16-bits": [
            taken_in(FOUR_AT_ONCE, ("w[t] = __expf(scores[t] - most)",
                                    "w[t] = __half2float(__float2half(__expf(scores[t] - most)))")),
            taken_in(FOUR_AT_ONCE, ("float old = __expf(state.m - most), w[4];",
                                    "float old = __expf(state.m - most);\n  KvNumber w[4];"),
                     ("w[t] = __expf(scores[t] - most)", "w[t] = from_float<KvNumber>(expf(scores[t] - most))"),
                     ("(w[0] + w[1] + w[2] + w[3])", "(to_float(w[0]) + to_float(w[1]) + to_float(w[2]) + to_float(w[3]))"),
                     ("w[t] * number", "to_float(w[t]) * number")),
            taken_in(TOKEN_BY_TOKEN, ("  for (int j", "    KvNumber small = from_float<KvNumber>(mine);\n    for (int j"),
                     ("mine * number", "to_float(small) * number"))],
        "maximum-of-the-warp": [taken_in(FOUR_AT_ONCE, (
            "  if (most == -INFINITY)",
            "  for (int d = 1; d < 32; d *= 2) most = fmaxf(most, __shfl_down_sync(~0u, most, d));\n"
            "  most = __shfl_sync(~0u, most, 0);\n  if (most == -INFINITY)"))],
        "token-left-out": [taken_in(TOKEN_BY_TOKEN, ("t < rows_at_once &&", "t < rows_at_once - 1 &&")),
                           taken_in(TOKEN_BY_TOKEN, ("int t = 0;", "int t = 1;")),
                           taken_in(FOUR_AT_ONCE, ("fmaxf(scores[2], scores[3])", "scores[2]"))],
        "token-and-number-swapped": [taken_in(FOUR_AT_ONCE, ("t < 4; ++t) sum += w[t] * number(values[t], j)",
                                                             "t < rows_at_once; ++t) sum += w[t] * number(values[j], t)"))],
        "place-in-the-part": [taken_in(FOUR_AT_ONCE, ("state.acc[j] = old * state.acc[j]",
                                                      "state.acc[place(j)] = old * state.acc[place(j)]"))],
    },
    "7.4": {
        "closed-before-the-copies": [staged(edited(TURNS, (START + CLOSE, CLOSE + START)))],
        "not-there-for-the-others": [staged(edited(
            TURNS, ("    copies.wait<3>();\n    __syncwarp();\n", ""),
            (START + CLOSE, START + CLOSE + "    copies.wait<3>();\n"),
            ("  for (int t = 0; t < num_tiles", "  copies.wait<3>();\n  __syncwarp();\n  for (int t = 0; t < num_tiles")))],
        "first-tile-alone-waited-for": [staged(edited(
            TURNS, ("    copies.wait<3>();\n", ""),
            ("  for (int t = 0; t < num_tiles", "  copies.wait<0>();\n  for (int t = 0; t < num_tiles")))],
        "wrong-tile": [staged(edited(THREE_AHEAD, ("t + num_stages - 1;", "t + 1;")))],
        "waits-for-too-many": [staged(edited(TURNS, (START, START.replace("start_copies(", "{ start_copies(").replace(
            ";\n", "; copies.close_group(); }\n"))))],
        "first-tiles-not-loaded": [staged(edited(TURNS, (TURNS.partition("  for (int t = 0; t < num_tiles")[0], ""))),
                                   staged(edited(THREE_AHEAD, ("t < num_stages - 1; ++t", "t < 1; ++t")))],
        "wrong-stage": [staged(edited(TURNS, ("stages[t], tiles", "stages[num_stages - 1 - t], tiles")))],
        "tile-offset-missing": [staged(edited(TURNS, ("(t + num_stages) * tile_floats",
                                                      "(t + num_stages) * sizeof(float) * tile_floats")))],
    },
    "7.5": {
        "combine-missing-l": [combined(BY_PAIRS)],
        "o-taken-as-undivided": [combined(edited(IN_TURN, ("    if (part_l[part] == 0) continue;\n", guard),
                                                 ("top += w *", "top += w / part_l[part] *")))
                                 for guard in ("", "    if (most == -INFINITY) break;\n")],
        "wrong-place-in-a-part": [combined(edited(IN_TURN, ("part_o[int64_t(part) * head_size",
                                                            "part_o[s * rows + row * head_size")))],
        "wrong-row-of-the-output": [combined(edited(IN_TURN, (
            "out[int64_t(row) * head_size", "out[(blockIdx.x + gridDim.x * blockIdx.y) * head_size")))],
        "sum-in-16-bits": [combined(edited(IN_TURN, ("top += w *", "top = to_float(from_float<Number>(top)) + w *"))),
                           combined(edited(IN_TURN, ("top = 0, bottom = 0;",
                                                     "bottom = 0;\n  Number top = from_float<Number>(0);"),
                                           ("top += w * part_o[int64_t(part) * head_size + threadIdx.x];",
                                            "top = from_float<Number>(to_float(top) + "
                                            "w * part_o[int64_t(part) * head_size + threadIdx.x]);"),
                                           ("top / bottom", "to_float(top) / bottom")))],
        "not-there-for-the-others": [combined(edited(WEIGHTS_IN_SHARED_MEMORY, ("  __syncthreads();\n", "")))],
        "wrong-part": [combined(edited(IN_TURN, ("rows = gridDim.x * gridDim.y", "rows = blockDim.x * blockDim.y"))),
                       combined(IN_TURN.replace("gridDim", "blockDim"))],
        "splits-counted-by-hand": [combined(IN_TURN.replace("s < num_splits", "s < 3"))],
        "weight-not-a-product": [
            combined(edited(IN_TURN, (WEIGHT, "expf((part_m[part] - most) * part_l[part])"))),
            combined(edited(IN_TURN, (WEIGHT, "logf(part_l[part]) + expf(part_m[part] - most)"),
                            ("if (part_l[part] == 0) continue;", "if (most == -INFINITY) break;")))],
        "shared-array-too-short": [combined(edited(WEIGHTS_IN_SHARED_MEMORY, ("weights[1024]", "weights[4]")))],
        "divided-twice": [combined(edited(IN_TURN, ("top / bottom", "top / (bottom * bottom)")))],
        "largest-split-alone": [combined(edited(IN_TURN, ("if (part_l[part] == 0) continue;",
                                                          f"if ({condition}) continue;")))
                                for condition in ("part_m[part] != most", "part_l[part] == 0 || part_m[part] < most")],
    },
    "7.6": {"cost-cut-too": [least_time(cost_within_the_brackets)], "cost-for-each-split": [least_time(every_block_pays)],
            "one-split-always": [least_time(whole_rows_in_each_wave)],
            "tiles-of-all-rows": [least_time(tiles_of_the_whole_batch)], "sizes-exchanged": [least_time(waves_of_tiles)],
            "cost-weighs-too-little": [least_time(tokens_of_a_split)], "not-all-tried": [up_to_the_number_of_rows]},
    "7.7": {"pieces-without-tiles": [walked(), walked(next_row=lambda left, rest: left > rest), an_empty_piece_for_no_tiles],
            "end-left-out-twice": [from_a_list_of_tiles(end_of=lambda total, b, n: total * (b + 1) // n - 1)],
            "shares-of-one-length": [from_a_list_of_tiles(end_of=lambda total, b, n: total * b // n + total // n)],
            "counted-from-the-share": [places_in_the_share], "rest-of-a-row-lost": [a_new_row_for_each_block],
            "listed-by-row": [a_list_for_each_row], "rows-moved": [the_longest_row_first, sorted_lengths],
            "pieces-out-of-order": [the_last_piece_first, the_longest_piece_first]},
}
