// Rung 1: tiles of queries against tiles of keys. A block takes 32 queries of a head. It
// copies 32 keys and values at a time into shared memory, and there all of its queries meet
// them. So a key is read from memory once for 32 queries. Four neighbouring lanes have a query
// together.
#include <cuda_runtime.h>

#include <cmath>

#include "params.cuh"

constexpr int tile_rows = 32, tile_keys = 32, num_threads = 4 * tile_rows;
constexpr int row_chunks = head_size / 8;  // a row in chunks of 16 bytes

// Rows in shared memory are 16 bytes longer than they need to be. Lanes that read the same
// chunk of neighbouring rows then use different banks.
struct Shared {
  uint4 queries[tile_rows][row_chunks + 1];
  uint4 keys[tile_keys][row_chunks + 1], values[tile_keys][row_chunks + 1];
  float weights[tile_rows][tile_keys + 1];
};

__device__ inline float number(const uint4& chunk, int i) {
  return to_float(reinterpret_cast<const Number*>(&chunk)[i]);
}

// Copies a tile of rows; row_of(i) is null for rows that do not exist, and they become zeros.
template <typename RowOf>
__device__ void copy_rows(uint4 (*to)[row_chunks + 1], int num_rows, RowOf row_of) {
  for (int i = threadIdx.x; i < num_rows * row_chunks; i += num_threads) {
    const Number* row = row_of(i / row_chunks);
    to[i / row_chunks][i % row_chunks] =
        row ? reinterpret_cast<const uint4*>(row)[i % row_chunks] : make_uint4(0, 0, 0, 0);
  }
}

// A lane's part of a query's softmax. The four lanes of a query have the same m, each the sum
// of its own weights, and every fourth chunk of acc.
struct RowState {
  float m = -INFINITY, l = 0.0f;
  float acc[row_chunks / 4][8] = {};
};

// Takes in the keys of a tile, as far as the query sees them.
//   num_seen: how many that is; more than tile_keys means all
__device__ inline void update(RowState& state, Shared& shared, int num_seen, float scale) {
  int row = threadIdx.x / 4, lane = threadIdx.x % 4;
  float scores[tile_keys / 4] = {}, m = state.m;
  for (int chunk = 0; chunk < row_chunks; ++chunk) {
    uint4 query = shared.queries[row][chunk];
    for (int i = 0; i < tile_keys / 4; ++i) {
      uint4 key = shared.keys[4 * i + lane][chunk];
      for (int j = 0; j < 8; ++j) scores[i] += number(query, j) * number(key, j);
    }
  }
  for (int i = 0; i < tile_keys / 4; ++i) {
    scores[i] = 4 * i + lane < num_seen ? scale * scores[i] : -INFINITY;
    m = fmaxf(m, scores[i]);
  }
  for (int distance = 1; distance < 4; distance *= 2)
    m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, distance));
  float finite = m == -INFINITY ? 0.0f : m, rescale = __expf(state.m - finite);
  state.m = m;
  state.l *= rescale;
  for (int i = 0; i < tile_keys / 4; ++i) {
    float weight = __expf(scores[i] - finite);
    state.l += weight;
    shared.weights[row][4 * i + lane] = weight;
  }
  for (auto& chunk : state.acc)
    for (float& sum : chunk) sum *= rescale;
  __syncwarp();  // the weights of all four lanes are there
  for (int key = 0; key < tile_keys; ++key) {
    float weight = shared.weights[row][key];
    for (int i = 0; i < row_chunks / 4; ++i) {
      uint4 value = shared.values[key][4 * i + lane];
      for (int j = 0; j < 8; ++j) state.acc[i][j] += weight * number(value, j);
    }
  }
}

// Grid: the heads of the first item, those of the second, …
__global__ void __launch_bounds__(num_threads)
    tiles_kernel(PrefillParams params, const WorkItem* items) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  WorkItem item = items[blockIdx.x / params.num_q_heads];
  int head = blockIdx.x % params.num_q_heads, row = threadIdx.x / 4, lane = threadIdx.x % 4;
  Sequence sequence(params, item.seq);
  copy_rows(shared.queries, tile_rows, [&](int i) {
    int query = item.first_row + i;
    return query < sequence.num_queries ? query_of(params, sequence.first_token + query, head)
                                        : nullptr;
  });
  RowState state;
  for (int tile = item.begin; tile < item.end; ++tile) {
    int first_key = tile * tile_keys;
    auto row_of = [&](const void* cache, int i) {
      if (first_key + i >= sequence.num_keys) return static_cast<const Number*>(nullptr);
      int64_t place = sequence.cache_row(params, first_key + i, head / queries_per_kv_head);
      return static_cast<const Number*>(cache) + place * head_size;
    };
    __syncthreads();  // all have used the last tile
    copy_rows(shared.keys, tile_keys, [&](int i) { return row_of(params.k_cache, i); });
    copy_rows(shared.values, tile_keys, [&](int i) { return row_of(params.v_cache, i); });
    __syncthreads();  // the whole tile is there
    update(state, shared, sequence.last_key(item.first_row + row) + 1 - first_key,
           params.scale);
  }
  float l = state.l;
  for (int distance = 1; distance < 4; distance *= 2)
    l += __shfl_xor_sync(0xffffffff, l, distance);
  if (item.first_row + row >= sequence.num_queries) return;
  Number* out = out_of(params, sequence.first_token + item.first_row + row, head);
  for (int i = 0; i < row_chunks / 4; ++i) {
    for (int j = 0; j < 8; ++j)
      out[(4 * i + lane) * 8 + j] = from_float<Number>(state.acc[i][j] / l);
  }
}

// items: the WorkItems, for tiles of planned_rows queries and planned_keys keys.
extern "C" int paged_prefill(PrefillParams params, const int* items, int num_items,
                             int planned_rows, int planned_keys, cudaStream_t stream) {
  if (planned_rows != tile_rows || planned_keys != tile_keys) return cudaErrorInvalidValue;
  cudaError_t error = cudaFuncSetAttribute(
      tiles_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (error != cudaSuccess) return error;
  tiles_kernel<<<num_items * params.num_q_heads, num_threads, sizeof(Shared), stream>>>(
      params, reinterpret_cast<const WorkItem*>(items));
  return cudaGetLastError();
}
