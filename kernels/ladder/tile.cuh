#pragma once

#include <cmath>

#include "../paged_params.cuh"
#include "fp8.cuh"
#include "matrix.cuh"

// A warp's work in rungs 4 and up: the keys and values of 16 tokens, for all query heads that
// share them.
//
// The matrix products need certain numbers in certain lanes (matrix.cuh). A lane gets them as
// chunks of 16 bytes, and each byte of the tile is in one lane only. With r = lane / 4 and
// s = lane % 4, a lane holds
//   keys:   of tokens r and r+8, chunk s of every four in a row
//   values: of tokens 2s, 2s+1, 2s+8 and 2s+9, chunk r of every eight in a row
// So the dims come in another order than in the cache. A sum over them is the same in any
// order, as long as the queries have the same order.
constexpr int tile_size = 16;
constexpr int per_chunk = 16 / sizeof(KvNumber);
constexpr int key_chunks = head_size / (4 * per_chunk);  // of one token, in one lane
constexpr int value_chunks = head_size / (8 * per_chunk);
constexpr int tile_chunks = 2 * key_chunks + 4 * value_chunks;
constexpr int query_tiles = (queries_per_kv_head + 7) / 8;  // a matrix product takes 8 queries
static_assert(head_size % (8 * per_chunk) == 0 && query_tiles <= 2,
              "kernels are made for fewer heads and larger sizes");

// A chunk's numbers in 16 bits. For 16-bit numbers that is the chunk itself. 8-bit numbers
// become twice as many bytes, so `half` says which eight of the sixteen numbers: the first (0)
// or the rest.
constexpr int halves = 2 / sizeof(KvNumber);  // 1 or 2
__device__ inline uint4 widen(uint4 chunk, int half) {
  if constexpr (sizeof(KvNumber) == 2) return chunk;
  return half ? widen_half(chunk.z, chunk.w) : widen_half(chunk.x, chunk.y);
}

// The state of a warp's softmax. A lane has the queries 2s and 2s+1 of each 8. Of their sums
// it has the dims that it loads.
struct TileState {
  float m[query_tiles][2], l[query_tiles][2];  // m: of the warp's tokens; l: of this lane's
  float acc[query_tiles][head_size / 16][4];
};

__device__ inline void init(TileState& state) {
  for (int t = 0; t < query_tiles; ++t) {
    for (int i = 0; i < 2; ++i) state.m[t][i] = -INFINITY, state.l[t][i] = 0.0f;
    for (int d = 0; d < head_size / 16; ++d) {
      for (int i = 0; i < 4; ++i) state.acc[t][d][i] = 0.0f;
    }
  }
}

// The lane's part of the queries: query r of each 8, with the same dims as the keys. Queries
// that do not exist are 0.
struct TileQueries {
  uint4 chunk[query_tiles][head_size / 32];
};

// q: (queries_per_kv_head, head_size)
__device__ inline TileQueries load_queries(const Number* q) {
  TileQueries queries;
  int lane = threadIdx.x % 32, r = lane / 4, s = lane % 4;
  for (int t = 0; t < query_tiles; ++t) {
    int query = 8 * t + r;
    for (int i = 0; i < head_size / 32; ++i) {
      int dim = (i / halves * 4 + s) * per_chunk + i % halves * 8;
      queries.chunk[t][i] = query < queries_per_kv_head
                                ? *reinterpret_cast<const uint4*>(q + query * head_size + dim)
                                : make_uint4(0, 0, 0, 0);
    }
  }
  return queries;
}

// A token's row in the caches, for one head; and where the queries and the output of a KV head
// begin.
__device__ inline int64_t cache_row(const PagedAttentionParams& params, int seq, int token,
                                    int kv_head) {
  int block =
      params.block_table[int64_t(seq) * params.max_blocks_per_seq + token / block_size];
  return (int64_t(block) * block_size + token % block_size) * params.num_kv_heads + kv_head;
}
__device__ inline const Number* query_row(const PagedAttentionParams& params, int seq,
                                          int kv_head) {
  return static_cast<const Number*>(params.q) + seq * params.q_stride +
         kv_head * queries_per_kv_head * head_size;
}
__device__ inline Number* out_row(const PagedAttentionParams& params, int seq, int kv_head) {
  return static_cast<Number*>(params.out) +
         (int64_t(seq) * params.num_q_heads + kv_head * queries_per_kv_head) * head_size;
}

// In what follows, chunks.key(i, chunk) and chunks.value(i, chunk) are those of the i-th token
// whose keys or values the lane holds.

// Scores of the t-th eight queries, before scaling: tokens r and r+8 × queries 2s and 2s+1.
template <typename Chunks>
__device__ void multiply_keys(float (&scores)[4], const TileQueries& queries, int t,
                              const Chunks& chunks) {
  float more[4] = {};  // two sums, so that a product need not wait for the one before
  for (float& score : scores) score = 0.0f;
#pragma unroll
  for (int i = 0; i < head_size / 32; ++i) {
    uint4 low = widen(chunks.key(0, i / halves), i % halves);
    uint4 high = widen(chunks.key(1, i / halves), i % halves);
    uint4 query = queries.chunk[t][i];
    multiply_add<Number>(scores, {low.x, high.x, low.y, high.y}, {query.x, query.y});
    multiply_add<Number>(more, {low.z, high.z, low.w, high.w}, {query.z, query.w});
  }
  for (int i = 0; i < 4; ++i) scores[i] += more[i];
}

// The online softmax: m, l and acc take in the scores' tokens. The scores become weights
// exp(score - m).
__device__ inline void take_scores(TileState& state, int t, float (&scores)[4], int num_tokens,
                                   float scale) {
  int r = threadIdx.x % 32 / 4;
  float rescale[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float low = r < num_tokens ? scale * scores[i] : -INFINITY;
    float high = r + 8 < num_tokens ? scale * scores[2 + i] : -INFINITY;
    float m = fmaxf(low, high);
    for (int distance = 4; distance < 32; distance *= 2)
      m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, distance));
    m = fmaxf(m, state.m[t][i]);
    float finite = m == -INFINITY ? 0.0f : m;
    rescale[i] = __expf(state.m[t][i] - finite);
    scores[i] = __expf(low - finite);
    scores[2 + i] = __expf(high - finite);
    state.l[t][i] = rescale[i] * state.l[t][i] + scores[i] + scores[2 + i];
    state.m[t][i] = m;
  }
  // After the first tiles the maximum seldom grows. Then the whole warp can leave the sums
  // alone.
  if (!__any_sync(0xffffffff, rescale[0] != 1.0f || rescale[1] != 1.0f)) return;
#pragma unroll
  for (int d = 0; d < head_size / 16; ++d) {
    for (int i = 0; i < 4; ++i) state.acc[t][d][i] *= rescale[i % 2];
  }
}

// acc += weights · values.
//   weights: for query r of each eight, of tokens 2s and 2s+1, and of tokens 2s+8 and 2s+9
template <typename Chunks>
__device__ void add_values(TileState& state, const uint32_t (&weights)[query_tiles][2],
                           const Chunks& chunks) {
#pragma unroll
  for (int i = 0; i < head_size / 64; ++i) {  // 8 dims of each of the lane's 4 tokens
    uint4 value[4];
    for (int token = 0; token < 4; ++token)
      value[token] = widen(chunks.value(token, i / halves), i % halves);
    const uint32_t *a = &value[0].x, *b = &value[1].x, *c = &value[2].x, *d = &value[3].x;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {  // two dims
      // __byte_perm picks four of the eight bytes of two registers. 0x5410 picks the lower
      // halves, which are the even dim of two tokens, and 0x7632 the upper halves.
      uint32_t both[4] = {
          __byte_perm(a[pair], b[pair], 0x5410), __byte_perm(a[pair], b[pair], 0x7632),
          __byte_perm(c[pair], d[pair], 0x5410), __byte_perm(c[pair], d[pair], 0x7632)};
      for (int t = 0; t < query_tiles; ++t)
        multiply_add<Number>(state.acc[t][4 * i + pair], both, weights[t]);
    }
  }
}

// Takes in a tile. num_tokens: the tile's tokens; 16 or more mean that all are there.
template <typename Chunks>
__device__ void update(TileState& state, const TileQueries& queries, const Chunks& chunks,
                       int num_tokens, float scale) {
  uint32_t weights[query_tiles][2];
#pragma unroll
  for (int t = 0; t < query_tiles; ++t) {
    float scores[4];
    multiply_keys(scores, queries, t, chunks);
    take_scores(state, t, scores, num_tokens, scale);
    weights[t][0] = transpose(pack<Number>(scores[0], scores[1]));
    weights[t][1] = transpose(pack<Number>(scores[2], scores[3]));
  }
  add_values(state, weights, chunks);
}
