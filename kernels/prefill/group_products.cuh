#pragma once

#include "../ladder/matrix.cuh"
#include "group_instructions.cuh"

// Products of matrices by a group of four warps. The tensor cores read shared memory by
// themselves, and work on while the threads go on. wait<n>(result) waits until all products
// are ready, except the latest n; `result` is the one that is needed now. Until then nobody
// may touch the registers of a product, or what it reads.
//
// Warp w of the group has the rows 16w … 16w + 15 of a result. In them a lane has the numbers
// that it has in RowState.
#ifdef __CUDACC__
// The compiler may not move a use of these registers across this.
template <int n>
__device__ inline void keep_in_place(float (&c)[n][4]) {
#pragma unroll
  for (auto& of_columns : c)
    for (float& number : of_columns) asm volatile("" : "+f"(number)::"memory");
}

struct GroupProducts {
  template <int n, int columns>
  __device__ void wait(float (&result)[columns][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
    keep_in_place(result);
  }
  // scores = queries · keys. queries: the group's, in shared memory.
  __device__ void multiply_keys(float (&scores)[stage_keys / 8][4], const uint4* queries,
                                const uint4* keys) {
    uint64_t a = describe(queries, 0), b = describe(keys, 0);
    begin(scores);
#pragma unroll
    for (int k = 0; k < head_size / 16; ++k) {  // 16 dims
      int panel = k / 4, chunk = k % 4 * chunks_of_16;
      product<Number>(scores, a + panel * group_rows * panel_chunks + chunk,
                      b + panel * stage_keys * panel_chunks + chunk, k > 0);
    }
    end();
  }
  // acc += weights · values. A lane has the weights of 16 keys as the left factor of a product
  // (../ladder/matrix.cuh).
  __device__ void add_values(float (&acc)[head_size / 8][4],
                             const uint32_t (&weights)[stage_keys / 16][4],
                             const uint4* values) {
    constexpr int columns = head_size < 128 ? head_size : 128, panel_bytes = stage_keys * 128;
    uint64_t b = describe(values, panel_bytes);
    begin(acc);
#pragma unroll
    for (int k = 0; k < stage_keys / 16; ++k) {  // 16 keys
#pragma unroll
      for (int first = 0; first < head_size; first += columns) {
        auto& sums = reinterpret_cast<float (&)[columns / 8][4]>(acc[first / 8]);
        int chunk = (first / 64 * stage_keys + k * 16) * panel_chunks;
        product<Number>(sums, weights[k], b + chunk);
      }
    }
    end();
  }

 private:
  // After the threads have written the registers of a product, and before it.
  template <int columns>
  __device__ void begin(float (&result)[columns][4]) {
    keep_in_place(result);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  }
  __device__ void end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
};
#else
// On the CPU a product is computed in wait(), and until then its scores are NaN. Each lane
// computes what it has of the result.
struct GroupProducts {
  struct Product {
    float (*result)[4];
    const uint4 *queries, *tile;  // a tile of keys, or without queries one of values
    const uint32_t (*weights)[4];
  };
  Product products[2];
  int count = 0;
  __device__ void multiply_keys(float (&scores)[stage_keys / 8][4], const uint4* queries,
                                const uint4* keys) {
    for (auto& of_keys : scores)
      for (float& score : of_keys) score = NAN;
    products[count++] = {scores, queries, keys, nullptr};
  }
  __device__ void add_values(float (&acc)[head_size / 8][4],
                             const uint32_t (&weights)[stage_keys / 16][4],
                             const uint4* values) {
    products[count++] = {acc, nullptr, values, weights};
  }
  template <int n, int columns>
  __device__ void wait(float (&)[columns][4]) {
    for (; count > n; --count) {
      if (products[0].queries) compute_scores(products[0]);
      else compute_values(products[0]);
      products[0] = products[1];
    }
  }

 private:
  static __device__ float dot(uint32_t x, uint32_t y) {
    float2 of_x = unpack<Number>(x), of_y = unpack<Number>(y);
    return of_x.x * of_y.x + of_x.y * of_y.y;
  }
  __device__ void compute_scores(const Product& product) {
    int warp = threadIdx.x % group_threads / 32, r = threadIdx.x % 32 / 4;
    int s = threadIdx.x % 4;
    for (int n = 0; n < stage_keys / 8; ++n)
      for (int number = 0; number < 4; ++number) {
        int row = 16 * warp + 8 * (number / 2) + r, key = 8 * n + 2 * s + number % 2;
        float sum = 0.0f;
        for (int chunk = 0; chunk < row_chunks; ++chunk) {
          uint4 q = product.queries[place_in_panels<group_rows>(row, chunk)];
          uint4 k = product.tile[place_in_panels<stage_keys>(key, chunk)];
          sum += dot(q.x, k.x) + dot(q.y, k.y) + dot(q.z, k.z) + dot(q.w, k.w);
        }
        product.result[n][number] = sum;
      }
  }
  __device__ void compute_values(const Product& product) {
    int r = threadIdx.x % 32 / 4, s = threadIdx.x % 4;
    for (int k = 0; k < stage_keys / 16; ++k)
      for (int other = 0; other < 4; ++other) {
        const uint32_t* mine = product.weights[k];
        uint4 all = __shfl_sync(0xffffffff, make_uint4(mine[0], mine[1], mine[2], mine[3]),
                                4 * r + other);
        int key = 16 * k + 2 * other;
        for (int d = 0; d < row_chunks; ++d)
          for (int i = 0; i < 2; ++i) {
            float* sums = product.result[d] + 2 * i;
            add_pair(sums, i ? all.y : all.x, product.tile, key, d, s);
            add_pair(sums, i ? all.w : all.z, product.tile, key + 8, d, s);
          }
      }
  }
  // Two weights times the values of their keys: of a chunk, the dims 2s and 2s+1.
  static __device__ void add_pair(float* sums, uint32_t weights, const uint4* values, int key,
                                  int chunk, int s) {
    float2 weight = unpack<Number>(weights);
    for (int i = 0; i < 2; ++i) {
      const uint4* at = values + place_in_panels<stage_keys>(key + i, chunk);
      float2 value = unpack<Number>(reinterpret_cast<const uint32_t*>(at)[s]);
      sums[0] += (i ? weight.y : weight.x) * value.x;
      sums[1] += (i ? weight.y : weight.x) * value.y;
    }
  }
};
#endif
