"""Lesson 07, exercises 7.4 to 7.7."""

import heapq
import math
from itertools import accumulate

import numpy as np
from cpp_edits import edited

from lessons_build.source import given_kernel
from paged_attention.splits import SPLIT_COST


def written(file, exercise, body, *more):
    """The given text of an exercise with a body of its own, and more (old, new) edits."""
    given = given_kernel(file, exercise)
    stub = next(line for line in given.split("\n") if "#error" in line)
    return edited(given, (stub, body.strip("\n")), *more)


# 7.4

def staged(body):
    return written("ladder/staged_sum.cuh", "7.4", body)


LOADED_BEFORE_USE = """
  // One meeting in each turn: the stage that is filled is the one that was used in the turn before.
  const int lead = num_stages - 1;
  for (int t = 0; t < lead; t++) {
    if (t < num_tiles) start_copies(copies, stages[t], &tiles[t * tile_floats]);
    copies.close_group();
  }
  for (int t = 0; t < num_tiles; t++) {
    copies.wait<lead - 1>();
    __syncwarp();
    if (t + lead < num_tiles) start_copies(copies, stages[(t + lead) % num_stages], &tiles[(t + lead) * tile_floats]);
    copies.close_group();
    sum += add_up(stages[t % num_stages]);
  }
"""
WITH_CURSORS = """
  int loaded = 0;
  auto load = [&] {
    if (loaded < num_tiles) {
      start_copies(copies, stages[loaded % num_stages], tiles);
      tiles += tile_floats;
    }
    ++loaded;
    copies.close_group();
  };
  while (loaded < num_stages) load();
  for (int stage = 0, left = num_tiles; left > 0; --left) {
    copies.wait<3>();
    __syncwarp();
    sum = sum + add_up(stages[stage]);
    __syncwarp();
    load();
    if (++stage == num_stages) stage = 0;
  }
"""
# Groups are closed only where something is in them, and near the end everything is waited for.
DRAINED = """
  int first = num_tiles < num_stages ? num_tiles : num_stages;
  for (int t = 0; t < first; ++t) {
    start_copies(copies, stages[t], tiles + t * tile_floats);
    copies.close_group();
  }
  for (int t = 0; t < num_tiles; ++t) {
    if (num_tiles - t >= num_stages) copies.wait<num_stages - 1>();
    else copies.wait<0>();
    __syncwarp(0xffffffff);
    float part = add_up(stages[t & 3]);
    __syncwarp(0xffffffff);
    sum += part;
    if (t + 4 < num_tiles) {
      start_copies(copies, stages[t & 3], tiles + (t + 4) * tile_floats);
      copies.close_group();
    }
  }
"""
UNROLLED_BY_STAGES = """
  for (int s = 0; s < num_stages; ++s) {
    if (s < num_tiles) start_copies(copies, stages[s], tiles + s * tile_floats);
    copies.close_group();
  }
  for (int round = 0; round < num_tiles; round += num_stages) {
    for (int s = 0; s < num_stages && round + s < num_tiles; ++s) {
      copies.wait<num_stages - 1>();
      __syncwarp();
      sum += add_up(stages[s]);
      __syncwarp();
      if (round + s + num_stages < num_tiles)
        start_copies(copies, stages[s], tiles + (round + s + num_stages) * tile_floats);
      copies.close_group();
    }
  }
"""
LOAD = """
    if (t + lead < num_tiles) start_copies(copies, stages[(t + lead) % num_stages], &tiles[(t + lead) * tile_floats]);
    copies.close_group();
""".lstrip("\n")

# 7.5


def combined(body, *more):
    return written("ladder/combine_parts.cuh", "7.5", body, *more)


ONE_PASS = """
  // The maximum grows, and what was summed before is rescaled: the online softmax over parts.
  int rows = gridDim.x * gridDim.y, row = blockIdx.x * gridDim.y + blockIdx.y, i = threadIdx.x;
  float m = -INFINITY, l = 0.0f, o = 0.0f;
  for (int part = row; part < num_splits * rows; part += rows) {
    if (part_l[part] == 0.0f) continue;
    float m_new = fmaxf(m, part_m[part]);
    float mine = expf(m - m_new), its = expf(part_m[part] - m_new) * part_l[part];
    o = mine * o + its * part_o[(int64_t)part * head_size + i];
    l = mine * l + its;
    m = m_new;
  }
  out[(int64_t)row * head_size + i] = from_float<Number>(l > 0.0f ? o / l : 0.0f);
"""
LOG_SUMS = """
  // Each part as one number, m + log(l): the weights are then a softmax of these.
  const int row = blockIdx.x * gridDim.y + blockIdx.y, rows = gridDim.x * gridDim.y;
  float top = -3.0e38f;
  for (int s = 0; s < num_splits; s++) {
    float one = part_m[s * rows + row] + logf(part_l[s * rows + row]);
    if (one > top) top = one;
  }
  double total = 0.0, weights = 0.0;
  for (int s = 0; s < num_splits; s++) {
    double weight = exp(double(part_m[s * rows + row] + logf(part_l[s * rows + row]) - top));
    weights += weight;
    total += weight * part_o[(int64_t(s) * rows + row) * head_size + threadIdx.x];
  }
  out[int64_t(row) * head_size + threadIdx.x] = from_float<Number>(weights == 0.0 ? 0.0f : float(total / weights));
"""
SHARED_WEIGHTS = """
  // Thread 0 finds the sums for all, and the others take the shares from there.
  __shared__ float m_all, l_all;
  const int row = blockIdx.x * gridDim.y + blockIdx.y, rows = gridDim.x * gridDim.y;
  if (threadIdx.x == 0) {
    m_all = -INFINITY;
    l_all = 0.0f;
    for (int s = 0; s < num_splits; ++s) m_all = max(m_all, part_m[s * rows + row]);
    if (m_all > -INFINITY) {
      for (int s = 0; s < num_splits; ++s) l_all += expf(part_m[s * rows + row] - m_all) * part_l[s * rows + row];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < head_size; i += blockDim.x) {
    float o = 0.0f;
    for (int s = 0; s < num_splits && l_all > 0.0f; ++s) {
      float share = expf(part_m[s * rows + row] - m_all) * part_l[s * rows + row] / l_all;
      o += share * part_o[(size_t(s) * rows + row) * head_size + i];
    }
    out[size_t(row) * head_size + i] = from_float<Number>(o);
  }
"""


# 7.6

def splits_by_loop(num_rows, num_tiles, num_multiprocessors):
    best, best_time = 1, math.inf
    for num_splits in range(1, num_tiles + 1):
        waves = math.ceil(num_rows * num_splits / num_multiprocessors)
        time = waves * (math.ceil(num_tiles / num_splits) + SPLIT_COST)
        if time < best_time:
            best, best_time = num_splits, time
    return best


def splits_by_sorting(num_rows, num_tiles, num_multiprocessors):
    def time(s):
        return ((num_rows * s + num_multiprocessors - 1) // num_multiprocessors) * ((num_tiles + s - 1) // s + SPLIT_COST)

    return sorted((time(s), s) for s in range(1, num_tiles + 1))[0][1]


def splits_by_numpy(num_rows, num_tiles, num_multiprocessors):
    s = np.arange(1, num_tiles + 1)
    return int(s[np.argmin(-(-num_rows * s // num_multiprocessors) * (-(-num_tiles // s) + SPLIT_COST))])


def splits_up_to_one_for_each_multiprocessor(num_rows, num_tiles, num_multiprocessors):
    """More than one row's blocks fill a wave is never quicker than fewer."""
    return min(range(1, num_multiprocessors + 1), key=lambda s: (
        math.ceil(num_rows * s / num_multiprocessors) * (math.ceil(num_tiles / s) + SPLIT_COST)))


def splits_by_their_sizes(num_rows, num_tiles, num_multiprocessors):
    best, least = 0, math.inf
    for s in range(num_tiles, 0, -1):
        sizes = [len(range(split, num_tiles, s)) for split in range(s)]
        time = math.ceil(num_rows * len(sizes) / num_multiprocessors) * (max(sizes) + SPLIT_COST)
        if time <= least:
            best, least = s, time
    return best


def whole_rows_are_free(num_rows, num_tiles, num_multiprocessors):
    best, least = 1, math.ceil(num_rows / num_multiprocessors) * num_tiles
    for s in range(2, num_tiles + 1):
        time = math.ceil(num_rows * s / num_multiprocessors) * (math.ceil(num_tiles / s) + SPLIT_COST)
        if time < least:
            best, least = s, time
    return best


def tiles_of_the_batch(num_rows, num_tiles, num_multiprocessors):
    total, times = num_rows * num_tiles, []
    for s in range(1, num_tiles + 1):
        times.append(math.ceil(num_rows * s / num_multiprocessors) * (math.ceil(total / s) + SPLIT_COST))
    return times.index(min(times)) + 1


def rest_in_short_blocks(num_rows, num_tiles, num_multiprocessors):
    times = {}
    for s in range(1, num_tiles + 1):
        waves, rest = num_rows * s // num_multiprocessors, num_rows * s % num_multiprocessors
        times[s] = waves * (math.ceil(num_tiles / s) + SPLIT_COST)
        if rest:
            times[s] += num_tiles // s + SPLIT_COST
    return min(times, key=times.get)


def least_waste(num_rows, num_tiles, num_multiprocessors):
    best, fewest = 1, math.inf
    for s in range(1, num_tiles + 1):
        idle = math.ceil(num_rows * s / num_multiprocessors) * num_multiprocessors - num_rows * s
        if idle < fewest:
            best, fewest = s, idle
    return best


def no_later_one(num_rows, num_tiles, num_multiprocessors):
    best, best_time = 1, math.inf
    for s in range(1, num_tiles + 1):
        time = math.ceil(num_rows * s / num_multiprocessors) * (math.ceil(num_tiles / s) + SPLIT_COST)
        if time <= best_time:
            best, best_time = s, time
    return best


def tiles_only(num_rows, num_tiles, num_multiprocessors):
    times = [(math.ceil(num_rows * s / num_multiprocessors) * math.ceil(num_tiles / s), s) for s in range(1, num_tiles + 1)]
    return min(times)[1]


def smooth_waves(num_rows, num_tiles, num_multiprocessors):
    s = np.arange(1, num_tiles + 1)
    return int(s[np.argmin((num_rows * s / num_multiprocessors) * (np.ceil(num_tiles / s) + SPLIT_COST))])


def whole_before_ceil(num_rows, num_tiles, num_multiprocessors):
    return min(range(1, num_tiles + 1), key=lambda s: (
        math.ceil(num_rows * s // num_multiprocessors) * (math.ceil(num_tiles // s) + SPLIT_COST)))


def one_split(num_rows, num_tiles, num_multiprocessors):
    return 1


def last_number(num_rows, num_tiles, num_multiprocessors):
    best = math.inf
    for s in range(1, num_tiles + 1):
        best = min(best, math.ceil(num_rows * s / num_multiprocessors) * (math.ceil(num_tiles / s) + SPLIT_COST))
    return s


def breaks_off(num_rows, num_tiles, num_multiprocessors):
    best = math.inf
    for s in range(1, num_tiles + 1):
        time = math.ceil(num_rows * s / num_multiprocessors) * (math.ceil(num_tiles / s) + SPLIT_COST)
        if time >= best:
            break
        best, number = time, s
    return number


def splits_by_numpy_unconverted(num_rows, num_tiles, num_multiprocessors):
    s = np.arange(1, num_tiles + 1)
    return s[np.argmin(np.ceil(num_rows * s / num_multiprocessors) * (np.ceil(num_tiles / s) + SPLIT_COST))]


def splits_by_range(numbers, result=lambda best, time: best):
    """A loop over numbers(num_tiles)."""
    def answer(num_rows, num_tiles, num_multiprocessors):
        least = None
        for s in numbers(num_tiles):
            time = -(-num_rows * s // num_multiprocessors) * (-(-num_tiles // s) + SPLIT_COST)
            if least is None or time < least:
                least, best = time, s
        return result(best, least)
    return answer


# 7.7

def cut_with_a_cursor(num_tiles, num_blocks):
    total, row, tile, place, shares = sum(num_tiles), 0, 0, 0, []
    for block in range(num_blocks):
        end, share = total * (block + 1) // num_blocks, []
        while place < end:
            step = min(end - place, num_tiles[row] - tile)
            share.append((row, tile, tile + step))
            place, tile = place + step, tile + step
            if tile == num_tiles[row]:
                row, tile = row + 1, 0
        shares.append(share)
    return shares


def cut_tile_by_tile(num_tiles, num_blocks):
    line = [(row, tile) for row, length in enumerate(num_tiles) for tile in range(length)]
    shares = []
    for block in range(num_blocks):
        pieces = {}
        for row, tile in line[len(line) * block // num_blocks : len(line) * (block + 1) // num_blocks]:
            first, _ = pieces.get(row, (tile, tile))
            pieces[row] = first, tile + 1
        shares.append([(row, *ends) for row, ends in pieces.items()])
    return shares


def cut_at_all_borders(num_tiles, num_blocks):
    """The line is cut where rows end and where shares end; each stretch is then one piece."""
    ends = list(accumulate(num_tiles))
    borders = [ends[-1] * block // num_blocks for block in range(num_blocks + 1)]
    places = list(dict.fromkeys(heapq.merge([0], ends, borders)))
    shares = [[] for _ in range(num_blocks)]
    for first, end in zip(places, places[1:]):
        row = sum(first >= row_end for row_end in ends)
        block = max(b for b in range(num_blocks) if borders[b] <= first)
        start = ends[row] - num_tiles[row]
        shares[block].append((row, first - start, end - start))
    return shares


def cut_by_numpy(num_tiles, num_blocks):
    ends = np.cumsum(num_tiles)
    starts = ends - num_tiles
    shares = []
    for block in range(num_blocks):
        first, end = ends[-1] * block // num_blocks, ends[-1] * (block + 1) // num_blocks
        begins, stops = np.maximum(first, starts) - starts, np.minimum(end, ends) - starts
        shares.append([[int(row), int(begins[row]), int(stops[row])] for row in np.flatnonzero(begins < stops)])
    return shares


def cut_at_two_ends(num_tiles, num_blocks):
    total, shares = sum(num_tiles), []

    def find(place):
        for row, length in enumerate(num_tiles):
            if place < length:
                return row, place
            place -= length

    for block in range(num_blocks):
        first, end = total * block // num_blocks, total * (block + 1) // num_blocks
        if first == end:
            shares.append([])
            continue
        (row, tile), (last_row, last_tile) = find(first), find(end - 1)
        if row == last_row:
            shares.append([(row, tile, last_tile + 1)])
        else:
            shares.append([(row, tile, num_tiles[row]), (last_row, 0, last_tile + 1)])
    return shares


def cut_from_what_is_left(num_tiles, num_blocks):
    total, row, done, shares, used = sum(num_tiles), 0, [0] * len(num_tiles), [], 0
    for block in range(num_blocks):
        want, share = total * (block + 1) // num_blocks - used, []
        used += want
        while want:
            take = min(want, num_tiles[row])
            share.append((row, done[row], done[row] + take))
            done[row] += take
            num_tiles[row] -= take
            want -= take
            if num_tiles[row] == 0:
                row += 1
        shares.append(share)
    return shares


def cut_with_a_late_step(num_tiles, num_blocks):
    total, row, tile, used, shares = sum(num_tiles), 0, 0, 0, []
    for block in range(num_blocks):
        want, share = total * (block + 1) // num_blocks - used, []
        used += want
        while want > 0:
            take = min(want, num_tiles[row] - tile)
            share.append((row, tile, tile + take))
            want, tile = want - take, tile + take
            if take == 0:
                row, tile = row + 1, 0
        shares.append(share)
    return shares


def cut_one_by_one(num_tiles, num_blocks):
    for share in cut_with_a_cursor(num_tiles, num_blocks):
        yield share


def shares_of_equal_size(num_tiles, num_blocks):
    size = sum(num_tiles) // num_blocks
    line = [(row, tile) for row in range(len(num_tiles)) for tile in range(num_tiles[row])]
    shares = []
    for block in range(num_blocks):
        mine = line[block * size : (block + 1) * size]
        rows = sorted({row for row, _ in mine})
        shares.append([(r, min(t for row, t in mine if row == r), max(t for row, t in mine if row == r) + 1) for r in rows])
    return shares


def shares_of_ceil(num_tiles, num_blocks):
    size, place, row, tile, shares = math.ceil(sum(num_tiles) / num_blocks), 0, 0, 0, []
    for _ in range(num_blocks):
        share, room = [], size
        while room and row < len(num_tiles):
            step = min(room, num_tiles[row] - tile)
            share.append((row, tile, tile + step))
            room, tile = room - step, tile + step
            if tile == num_tiles[row]:
                row, tile = row + 1, 0
        shares.append(share)
    return shares


def only_blocks_with_work(num_tiles, num_blocks):
    shares = []
    for share in cut_with_a_cursor(num_tiles, num_blocks):
        if share:
            shares.append(share)
    return shares


def last_tile_named(num_tiles, num_blocks):
    return [[(row, first, end - 1) for row, first, end in share] for share in cut_tile_by_tile(num_tiles, num_blocks)]


def cut_like_ours(num_tiles, num_blocks, division="//", begin="max(place, start)", end="min(stop, start + length)",
                  shares="[[] for _ in range(num_blocks)]", result="shares"):
    """A learner's text with some of its expressions replaced."""
    total = sum(num_tiles)
    shares, start = eval(shares), 0
    for row, length in enumerate(num_tiles):
        for block in range(num_blocks):
            place, stop = eval(f"total * block {division} num_blocks"), eval(f"total * (block + 1) {division} num_blocks")
            first, last = eval(begin), eval(end)
            if first < last:
                shares[block].append((row, first - start, last - start))
        start += length
    return eval(result)


def respelt_cut(**expressions):
    return lambda num_tiles, num_blocks: cut_like_ours(num_tiles, num_blocks, **expressions)


RIGHT_ANSWERS = {
    "7.4": [staged(LOADED_BEFORE_USE), staged(WITH_CURSORS), staged(DRAINED), staged(UNROLLED_BY_STAGES)],
    "7.5": [combined(ONE_PASS), combined(LOG_SUMS), combined(SHARED_WEIGHTS),
            combined(SHARED_WEIGHTS, (", head_size, 0, stream", ", 32, 0, stream"))],
    "7.6": [splits_by_loop, splits_by_sorting, splits_by_numpy, splits_by_numpy_unconverted,
            splits_up_to_one_for_each_multiprocessor, splits_by_their_sizes],
    "7.7": [cut_with_a_cursor, cut_tile_by_tile, cut_at_all_borders, cut_by_numpy],
}

WRONG_ANSWERS = {
    "7.4": {
        "waits-for-everything": [edited(staged(WITH_CURSORS), ("wait<3>", "wait<0>"))],
        "waits-for-too-many": [edited(staged(LOADED_BEFORE_USE), ("copies.wait<lead - 1>();", "copies.wait<lead - 2>();"),
                                      (LOAD, ""), ("[t % num_stages]);\n", "[t % num_stages]);\n" + LOAD))],
        "no-wait": [edited(staged(UNROLLED_BY_STAGES), ("      copies.wait<num_stages - 1>();\n", ""))],
        "not-there-for-the-others": [edited(staged(LOADED_BEFORE_USE), ("    __syncwarp();\n", "")),
                                     edited(staged(DRAINED), ("    __syncwarp(0xffffffff);\n    float", "    float"))],
        "stage-reused-too-soon": [edited(staged(WITH_CURSORS), ("    __syncwarp();\n    load();", "    load();"))],
        "group-not-closed": [edited(staged(DRAINED), ("    if (num_tiles - t >= num_stages) ", "    "),
                                    ("    else copies.wait<0>();\n", "")),
                             edited(staged(LOADED_BEFORE_USE),
                                    (LOAD, LOAD.replace(") start", ") { start").rstrip() + " }\n"))],
        "loads-behind-the-end": [edited(staged(UNROLLED_BY_STAGES), ("    if (s < num_tiles) start", "    start"))],
        "waits-for-other-warps": [edited(staged(LOADED_BEFORE_USE), ("__syncwarp()", "__syncthreads()"))],
        "last-tiles-forgotten": [edited(staged(WITH_CURSORS), ("left = num_tiles;", "left = num_tiles - 4;"))],
        "tiles-not-through-the-stages": [
            staged("  for (int i = threadIdx.x % 32; i < num_tiles * tile_floats; i += 32) sum += tiles[i];")],
        "wrong-stage": [edited(staged(WITH_CURSORS), ("add_up(stages[stage])", "add_up(stages[(stage + 1) % num_stages])"))],
        "few-tiles-forgotten": [edited(staged(DRAINED), ("  int first = num_tiles < num_stages ? num_tiles : num_stages;\n",
                                                         "  if (num_tiles < 4) return 0.0f;\n  int first = 4;\n"))],
        "lanes-added-together": [edited(staged(DRAINED), ("    float part = add_up(stages[t & 3]);\n", """
    float part = add_up(stages[t & 3]);
    for (int d = 1; d < 32; d *= 2) part += __shfl_xor_sync(0xffffffff, part, d);
""".lstrip("\n")))],
        "waits-for-too-few": [edited(staged(LOADED_BEFORE_USE), ("wait<lead - 1>", "wait<lead>"))],
        "one-lane-copies": [edited(staged(LOADED_BEFORE_USE), ("if (t + lead", "if (threadIdx.x % 32 == 0 && t + lead"))],
    },
    "7.5": {
        "combine-missing-exp": [edited(combined(SHARED_WEIGHTS), ("float share = expf(part_m[s * rows + row] - m_all)",
                                                                  "float share = (part_m[s * rows + row] - m_all)"))],
        "combine-missing-l": [edited(combined(ONE_PASS), ("its = expf(part_m[part] - m_new) * part_l[part]",
                                                          "its = expf(part_m[part] - m_new)"))],
        "running-sum-not-rescaled": [edited(combined(ONE_PASS), ("mine * o", "o"), ("mine * l", "l"),
                                            ("mine = expf(m - m_new), ", ""))],
        "nan-on-empty-row": [edited(combined(LOG_SUMS), ("-3.0e38f", "-INFINITY"))],
        "sum-not-normalised": [edited(combined(ONE_PASS), ("l > 0.0f ? o / l : 0.0f", "o"))],
        "wrong-part": [edited(combined(ONE_PASS), ("int part = row; part < num_splits * rows; part += rows",
                                                   "int part = row * num_splits; part < (row + 1) * num_splits; ++part"))],
        "stops-at-an-empty-split": [edited(combined(ONE_PASS), ("continue;", "break;")),
                                    edited(combined(ONE_PASS), ("continue;", "return;"))],
        "nan-when-the-first-split-is-empty": [
            edited(combined(ONE_PASS), ("    if (part_l[part] == 0.0f) continue;\n", ""))],
        "empty-row-not-written": [edited(combined(ONE_PASS), ("  out[", "  if (l == 0.0f) return;\n  out["))],
        "first-maximum-alone": [edited(combined(SHARED_WEIGHTS), (
            "m_all = max(m_all, part_m[s * rows + row])", "m_all = part_m[row]"))],
        "wrong-row": [edited(combined(LOG_SUMS), ("blockIdx.x * gridDim.y", "blockIdx.x * gridDim.x"))],
        "divided-at-each-step": [edited(combined(ONE_PASS), ("    m = m_new;\n", "    m = m_new;\n    o /= l;\n"),
                                        ("l > 0.0f ? o / l : 0.0f", "o"))],
        "thread-left-out": [edited(combined(ONE_PASS), ("(int64_t)row * head_size + i]", "(int64_t)row * head_size]"))],
        "head-size-typed": [edited(combined(ONE_PASS), ("(int64_t)part * head_size", "(int64_t)part * 128"))],
        "output-written-in-part": [edited(combined(SHARED_WEIGHTS, (", head_size, 0, stream", ", 32, 0, stream")),
                                          ("for (int i = threadIdx.x; i < head_size; i += blockDim.x)",
                                           "int i = threadIdx.x;"))],
    },
    "7.6": {"one-split-free": [whole_rows_are_free], "tiles-of-all-rows": [tiles_of_the_batch],
            "last-wave-shorter": [rest_in_short_blocks], "fewest-idle": [least_waste],
            "last-of-equals": [no_later_one], "cost-left-out": [tiles_only],
            "one-split-always": [smooth_waves, whole_before_ceil, one_split], "one-tile-in-each-split": [last_number],
            "stops-at-the-first-worse": [breaks_off], "no-splits-tried": [splits_by_range(lambda tiles: range(tiles + 1))],
            "not-all-tried": [splits_by_range(lambda tiles: range(1, tiles)),
                              splits_by_range(lambda tiles: range(2, tiles + 1)),
                              splits_by_range(lambda tiles: range(1, min(tiles + 1, 33)))],
            "time-beside-the-number": [splits_by_range(lambda tiles: range(1, tiles + 1), lambda *both: both)],
            "returns-nothing": [splits_by_range(lambda tiles: range(1, tiles + 1), lambda best, time: None)]},
    "7.7": {"rows-between-lost": [cut_at_two_ends], "num-tiles-changed": [cut_from_what_is_left],
            "pieces-without-tiles": [cut_with_a_late_step], "shares-yielded": [cut_one_by_one],
            "last-tiles-lost": [shares_of_equal_size], "shares-rounded-up": [shares_of_ceil],
            "empty-shares-left-out": [only_blocks_with_work], "end-included": [last_tile_named],
            "parts-of-tiles": [respelt_cut(division="/")], "begin-not-cut": [respelt_cut(begin="start")],
            "end-not-cut": [respelt_cut(end="start + length")], "begins-before-the-row": [respelt_cut(begin="place")],
            "ends-behind-the-row": [respelt_cut(end="stop")], "one-list-for-all": [respelt_cut(shares="[[]] * num_blocks")],
            "none-for-an-empty-share": [respelt_cut(result="[share or None for share in shares]")],
            "pieces-not-in-lists": [respelt_cut(result="sum(shares, [])")], "returns-nothing": [respelt_cut(result="None")],
            "share-ends-too-late": [respelt_cut(end="min(stop + 1, start + length)")],
            "raises-an-error": [respelt_cut(result="share")]},
}
