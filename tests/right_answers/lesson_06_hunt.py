"""Lesson 06, exercises 6.7 and 6.8."""

import torch
from cpp_edits import edited

from lessons_lib.inline import read_kernel
from paged_attention.validate import check_range, check_tensor
from lessons_build.source import given_kernel

# 6.7


def check_by_mask(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    if (context_lens < 0).any():
        raise ValueError(f"context_lens has a negative length: {context_lens.tolist()}")
    needed = (context_lens.long() + block_size - 1) // block_size
    if (needed > block_table.shape[1]).any():
        raise ValueError("a row of block_table is too short for its context_lens")
    counts = torch.arange(block_table.shape[1], device=block_table.device) < needed[:, None]
    if (((block_table < 0) | (block_table >= num_blocks)) & counts).any():
        raise ValueError("block_table points outside the pool")


def check_by_token(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    for seq in range(len(context_lens)):
        if int(context_lens[seq]) < 0:
            raise ValueError(f"context_lens[{seq}] is negative")
        for token in range(int(context_lens[seq])):
            column = token // block_size
            if column >= block_table.size(1):
                raise ValueError(f"token {token} of context_lens[{seq}] has no column")
            entry = int(block_table[seq, column])
            if entry not in range(num_blocks):
                raise ValueError(f"block_table[{seq}, {column}] is {entry}")


def check_by_generator(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    table, lengths = block_table.cpu().numpy(), context_lens.cpu().numpy()
    if len(lengths) and lengths.min() < 0:
        raise ValueError("negative context_lens")
    for row, length in zip(table, lengths):
        blocks, rest = divmod(int(length), block_size)
        blocks += rest > 0
        if blocks > len(row):
            raise ValueError("context_lens beyond the row of block_table")
        used = row[:blocks]
        if blocks and (used.min() < 0 or used.max() > num_blocks - 1):
            raise ValueError(f"block_table: {used}")


def check_by_padding(block_table, context_lens, num_blocks, block_size):
    """Compares sets, after the entries behind each context have been replaced in a copy."""
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    table = block_table.clone()
    for row, length in zip(table, context_lens.tolist(), strict=True):
        if not 0 <= length <= len(row) * block_size:
            raise ValueError(f"context_lens: {length} is not 0 to {len(row) * block_size}")
        row[(length - 1) // block_size + 1:] = 0
    if not set(table.flatten().tolist()) <= {0, *range(num_blocks)}:
        raise ValueError("block_table has an id that the pool does not have")


def minus_one_is_fine(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    for seq, length in enumerate(context_lens.tolist()):
        if length < 0 or (length + block_size - 1) // block_size > block_table.shape[1]:
            raise ValueError("context_lens")
        ids = block_table[seq][block_table[seq] != -1]
        if ((ids < 0) | (ids >= num_blocks)).any():
            raise ValueError("block_table has a bad id")


def whole_rows(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    if context_lens.min() < 0:
        raise ValueError("context_lens must not be negative")
    if context_lens.max() > block_table.shape[1] * block_size:
        raise ValueError("context_lens is too long for block_table")
    if block_table.numel() and (block_table.min() < 0 or block_table.max() >= num_blocks):
        raise ValueError("block_table is out of range")


def floor_division(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    if (context_lens < 0).any() or (context_lens > block_table.shape[1] * block_size).any():
        raise ValueError("context_lens does not fit")
    for row, length in zip(block_table, context_lens):
        if any(block not in range(num_blocks) for block in row[: length // block_size].tolist()):
            raise ValueError("block_table holds a wrong id")


def errors_returned(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    for row, length in zip(block_table.tolist(), context_lens.tolist()):
        if not 0 <= length <= len(row) * block_size:
            return ValueError("context_lens")
        if any(not 0 <= entry < num_blocks for entry in row[: (length + block_size - 1) // block_size]):
            return ValueError("block_table")


def everything_blamed(block_table, context_lens, num_blocks, block_size):
    try:
        check_by_token(block_table, context_lens, num_blocks, block_size)
    except ValueError:
        raise ValueError("one of block_table and context_lens is wrong") from None


def slices_only(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    for row, length in zip(block_table.tolist(), context_lens.tolist()):
        if length < 0:
            raise ValueError(f"context_lens: {length}")
        for entry in row[: (length + block_size - 1) // block_size]:
            if entry < 0 or entry >= num_blocks:
                raise ValueError(f"block_table: {entry}")


def zero_is_too_short(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    for seq in range(len(block_table)):
        length = context_lens[seq].item()
        if not 1 <= length <= block_table.shape[1] * block_size:
            raise ValueError(f"context_lens must be 1 to {block_table.shape[1] * block_size}")
        last = (length - 1) // block_size
        if not all(0 <= block < num_blocks for block in block_table[seq, : last + 1].tolist()):
            raise ValueError("block_table holds what is no block")


def _by_row(look):
    """The given lines, and then look(row, length, num_blocks, block_size) for each sequence."""
    def check(block_table, context_lens, num_blocks, block_size):
        check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
        check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
        for row, length in zip(block_table, context_lens.tolist(), strict=True):
            look(row, length, num_blocks, block_size)
    return check


def _length(row, length, block_size):
    if not 0 <= length <= len(row) * block_size:
        raise ValueError(f"context_lens has {length}")


def _ids(ids, num_blocks):
    if not all(0 <= block < num_blocks for block in ids.tolist()):
        raise ValueError("block_table has an id that is no block")


@_by_row
def entries_alone(row, length, num_blocks, block_size):
    _ids(row[: (length + block_size - 1) // block_size if length > 0 else 0], num_blocks)


@_by_row
def not_to_the_end(row, length, num_blocks, block_size):
    check_range("context_lens", torch.tensor([-(-length // block_size)]), 0, len(row), "blocks")
    _ids(row[: -(-length // block_size)], num_blocks)


@_by_row
def as_many_as_tokens(row, length, num_blocks, block_size):
    _length(row, length, block_size)
    _ids(row[:length], num_blocks)


@_by_row
def the_last_alone(row, length, num_blocks, block_size):
    _length(row, length, block_size)
    if length > 0:
        _ids(row[(length - 1) // block_size].reshape(1), num_blocks)


@_by_row
def ids_of_slots(row, length, num_blocks, block_size):
    _length(row, length, block_size)
    _ids(row[: -(-length // block_size)], num_blocks * block_size)


@_by_row
def by_index(row, length, num_blocks, block_size):
    if length < 0:
        raise ValueError("context_lens is negative")
    for i in range(-(-length // block_size)):
        if row[i] < 0 or row[i] >= num_blocks:
            raise ValueError(f"block_table holds {row[i]}")


@_by_row
def by_the_largest(row, length, num_blocks, block_size):
    _length(row, length, block_size)
    needed = row[: -(-length // block_size)]
    if needed.max() >= num_blocks or needed.min() < 0:
        raise ValueError("block_table has a bad id")


def returns_in_the_loop(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    check_range("context_lens", context_lens, 0, block_table.shape[1] * block_size + 1, "tokens")
    for row, length in zip(block_table, context_lens.tolist(), strict=True):
        check_range("block_table", row[: -(-length // block_size)], 0, num_blocks, "blocks")
        return


def clamps_the_table(block_table, context_lens, num_blocks, block_size):
    check_tensor("context_lens", context_lens, ("num_seqs",), torch.int32)
    check_tensor("block_table", block_table, (len(context_lens), "max_blocks_per_seq"), torch.int32)
    block_table.clamp_(0, num_blocks - 1)
    check_range("context_lens", context_lens, 0, block_table.shape[1] * block_size + 1, "tokens")


# 6.8

OURS = read_kernel("bug_hunt.cu")
GIVEN = given_kernel("bug_hunt.cu", "6.8")

# From here to there: one edit for each fault of the given text, in hunting order.
REPAIRS = {
    "no-dynamic-smem": ("128, 0, stream", "128, (p.head_size + 128 + p.max_context_len) * sizeof(float), stream"),
    "missing-barrier": ("// From here on, each thread reads all that the others found.", "__syncthreads();"),
    "shared-alias": ("extern __shared__ float largest[];", "float* largest = query + p.head_size;"),
    "wrong-layout": ("((block_id * p.num_kv_heads + kv_head) * p.block_size + token % p.block_size) * p.head_size",
                     "((block_id * p.block_size + token % p.block_size) * p.num_kv_heads + kv_head) * p.head_size"),
    "wrong-head-mapping": ("max(1, int(blockDim.y) / p.num_kv_heads)", "(p.num_q_heads / p.num_kv_heads)"),
    "wrong-table-stride": ("sequence * p.num_q_heads + token", "sequence * p.max_blocks_per_seq + token"),
    "empty-context-unwritten": ("if (context_len == 0) return;", ""),
    "fixed-score-buffer": ("__shared__ float scores[256];", "float* scores = largest + blockDim.x;"),
}
FAULTS = list(REPAIRS)


def repaired(*slugs):
    """The given text without these faults."""
    return edited(GIVEN, *(REPAIRS[slug] for slug in slugs))


# A pass for the maximum that needs no array, a warp for each token, and zeros written where they are due.
OTHER_KERNEL = r"""
#include <cuda_runtime.h>
__global__ void attend(PagedAttentionParams p) {
  extern __shared__ float weights[];
  __shared__ float total;
  const int s = blockIdx.x, h = blockIdx.y, n = p.context_lens[s], warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int kv = h * p.num_kv_heads / p.num_q_heads;
  const int* blocks = p.block_table + s * (int64_t)p.max_blocks_per_seq;
  const float* q = static_cast<const float*>(p.q) + s * p.q_stride + h * p.head_size;
  auto at = [&](const void* cache, int t) {
    int64_t slot = (int64_t)blocks[t / p.block_size] * p.block_size + t % p.block_size;
    return static_cast<const float*>(cache) + (slot * p.num_kv_heads + kv) * p.head_size;
  };
  for (int t = warp; t < n; t += blockDim.x / 32) {
    float dot = 0.f;
    for (int d = lane; d < p.head_size; d += 32) dot += q[d] * at(p.k_cache, t)[d];
    for (int step = 16; step; step >>= 1) dot += __shfl_down_sync(0xffffffffu, dot, step);
    if (lane == 0) weights[t] = dot * p.scale;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float top = -INFINITY;
    total = 0.f;
    for (int t = 0; t < n; ++t) top = fmaxf(top, weights[t]);
    for (int t = 0; t < n; ++t) total += weights[t] = expf(weights[t] - top);
  }
  __syncthreads();
  float* out = static_cast<float*>(p.out) + ((int64_t)s * gridDim.y + h) * p.head_size;
  for (int d = threadIdx.x; d < p.head_size; d += blockDim.x) {
    float sum = 0.f;
    for (int t = 0; t < n; ++t) sum += weights[t] * at(p.v_cache, t)[d];
    out[d] = n ? sum / total : 0.f;
  }
}
extern "C" int paged_attention(PagedAttentionParams p, cudaStream_t stream) {
  attend<<<dim3(p.num_seqs, p.num_q_heads), 96, p.max_context_len * sizeof(float), stream>>>(p);
  return (int)cudaGetLastError();
}
"""

HUNTS = [
    repaired(*FAULTS),
    # The scores come first, and zeros are written before the return.
    edited(repaired("missing-barrier", "wrong-layout", "wrong-head-mapping", "wrong-table-stride"),
           ("extern __shared__ float query[];",
            "extern __shared__ float memory[];\n  float* query = memory + p.max_context_len;"),
           ("extern __shared__ float largest[];", "float* largest = &query[p.head_size];"),
           ("__shared__ float scores[256];", "float* scores = memory;"),
           ("if (context_len == 0) return;",
            "if (context_len == 0) { if (threadIdx.x < p.head_size) out[threadIdx.x] = 0; "
            "for (int d = threadIdx.x + 128; d < p.head_size; d += 128) out[d] = 0; return; }"),
           ("hunted_kernel<<<dim3(p.num_seqs, p.num_q_heads), 128, 0,",
            "int bytes = 4 * (p.max_context_len + p.head_size + 128);\n"
            "  hunted_kernel<<<dim3(p.num_seqs, p.num_q_heads), 128, bytes,")),
    # Static arrays where the size is known, and the alias gone with the second array.
    edited(repaired("missing-barrier", "wrong-layout", "wrong-table-stride", "empty-context-unwritten"),
           ("extern __shared__ float query[];", "__shared__ float query[256];"),
           ("extern __shared__ float largest[];", "__shared__ float largest[128];"),
           ("__shared__ float scores[256];", "extern __shared__ float scores[];"),
           ("head / max(1, int(blockDim.y) / p.num_kv_heads)", "head * p.num_kv_heads / p.num_q_heads"),
           ("128, 0, stream", "128, p.max_context_len * sizeof(float), stream")),
    OTHER_KERNEL,
]

RIGHT_ANSWERS = {"6.7": [check_by_mask, check_by_token, check_by_generator, check_by_padding], "6.8": HUNTS}

WRONG_ANSWERS = {
    "6.7": {
        "minus-one-accepted": [minus_one_is_fine],
        "refuses-padding": [whole_rows],
        "last-block-not-checked": [floor_division],
        "context-beyond-the-row": [slices_only],
        "refuses-an-empty-context": [zero_is_too_short],
        "returned-not-raised": [errors_returned],
        "names-the-wrong-argument": [everything_blamed],
        "contexts-not-checked": [entries_alone],
        "full-row-refused": [not_to_the_end],
        "tokens-for-entries": [as_many_as_tokens],
        "last-entry-alone": [the_last_alone],
        "slots-for-blocks": [ids_of_slots],
        "error-by-accident": [by_index],
        "largest-of-none": [by_the_largest],
        "first-sequence-only": [returns_in_the_loop],
        "padding-overwritten": [clamps_the_table],
    },
    "6.8": {
        # What a hunter hands in after one repair, two, three …; then a single fault in a kernel of another make.
        fault: [repaired(*FAULTS[:number])] for number, fault in enumerate(FAULTS) if number
    },
}
WRONG_ANSWERS["6.8"]["max-starts-at-zero"] = [edited(OTHER_KERNEL, ("float top = -INFINITY", "float top = 0.f"))]
WRONG_ANSWERS["6.8"]["no-dynamic-smem"] = [
    edited(GIVEN, ("128, 0, stream", "128, p.head_size * sizeof(float), stream")),
    edited(OTHER_KERNEL, ("96, p.max_context_len * sizeof(float), stream", "96, 0, stream")),
    repaired(*FAULTS[1:]),
]
WRONG_ANSWERS["6.8"]["missing-barrier"] += [
    edited(OTHER_KERNEL, ("  __syncthreads();\n  float* out", "  float* out")), repaired(*FAULTS[:1], *FAULTS[2:])]
WRONG_ANSWERS["6.8"]["shared-alias"] += [
    repaired(*FAULTS[:2], *FAULTS[3:]),
    edited(repaired(*(fault for fault in FAULTS if fault != "shared-alias")),
           ("extern __shared__ float largest[];", "float* largest = query + 128;"),
           ("(p.head_size + 128 + p.max_context_len)", "(2 * p.head_size + 256 + p.max_context_len)"))]
WRONG_ANSWERS["6.8"]["wrong-layout"] += [repaired(*FAULTS[:3], *FAULTS[4:])]
WRONG_ANSWERS["6.8"]["wrong-head-mapping"] += [
    repaired(*FAULTS[:4], *FAULTS[5:]),
    edited(OTHER_KERNEL, ("h * p.num_kv_heads / p.num_q_heads", "h"))]
WRONG_ANSWERS["6.8"]["heads-taken-in-turn"] = [
    edited(OTHER_KERNEL, ("h * p.num_kv_heads / p.num_q_heads", "h % p.num_kv_heads"))]
WRONG_ANSWERS["6.8"]["wrong-table-stride"] += [
    repaired(*FAULTS[:5], *FAULTS[6:]),
    edited(OTHER_KERNEL, ("s * (int64_t)p.max_blocks_per_seq", "s * p.block_size"))]
WRONG_ANSWERS["6.8"]["empty-context-unwritten"] += [
    repaired(*FAULTS[:6], *FAULTS[7:]),
    edited(OTHER_KERNEL, ("const int kv = h", "if (n == 0) return;\n  const int kv = h"))]
WRONG_ANSWERS["6.8"]["fixed-score-buffer"] += [
    edited(repaired(*FAULTS[:-1]), ("__shared__ float scores[256];", "__shared__ float scores[8192];")),
    edited(repaired(*FAULTS[:-1]), ("__shared__ float scores[256];", "__shared__ float scores[11000];"),
           ("p.head_size + 128 + p.max_context_len", "p.head_size + 128")),
    edited(OTHER_KERNEL, ("p.max_context_len * sizeof(float), stream", "2048 * sizeof(float), stream"))]
