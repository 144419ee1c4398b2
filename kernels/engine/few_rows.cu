// A product of a few rows with a weight: (num_rows, depth) times (num_columns, depth),
// transposed. Reading the weight is what takes time. So a block of threads has a few columns and
// a share of the depth, asks for all of its numbers at once, and begins to multiply when one
// half of them is there. Each share leaves a part of the sum, and add_norm adds the parts up.
#include <cuda_runtime.h>

#include "../ladder/async_copy.cuh"
#include "../ladder/matrix.cuh"
#include "../prefill/matrix_loads.cuh"
#include "chunk.cuh"

constexpr int few_rows = 64;         // the most rows; 16 for each warp
constexpr int columns_at_once = 32;  // of a block
constexpr int few_rows_threads = few_rows / 16 * 32;

// Rows of x and then of the weight in shared memory: a share of each. A row's chunks of 16
// bytes are swizzled, so that lanes which read eight rows together use different banks.
struct Tile {
  uint4* memory;
  int row_chunks;  // a multiple of 16

  __device__ uint4* at(int row, int chunk) const {
    return memory + row * row_chunks + (chunk ^ row % 8);
  }
};

template <typename T>
__device__ void copy_half(AsyncCopies& copies, const Tile& tile, const T* x, const T* weight,
                          int num_rows, int depth, int half) {
  int half_chunks = tile.row_chunks / 2, num_all = (few_rows + columns_at_once) * half_chunks;
  for (int i = threadIdx.x; i < num_all; i += few_rows_threads) {
    int row = i / half_chunks, chunk = half * half_chunks + i % half_chunks;
    const T* from =
        row < few_rows ? x + int64_t(row) * depth : weight + int64_t(row - few_rows) * depth;
    bool there = row >= few_rows || row < num_rows;
    copies.copy(tile.at(row, chunk), there ? from + 8 * chunk : x, there);
  }
  copies.close_group();
}

// sums += x · weight for the warp's 16 rows and all columns, over one half of the share.
template <typename T>
__device__ void multiply_half(float (&sums)[columns_at_once / 8][4], const Tile& tile,
                              int half) {
  int lane = threadIdx.x % 32, half_chunks = tile.row_chunks / 2;
  int row = threadIdx.x / 32 * 16 + lane % 16, column = few_rows + lane / 16 * 8 + lane % 8;
  for (int chunk = half * half_chunks; chunk < (half + 1) * half_chunks; chunk += 2) {
    uint32_t a[4], b[4];
    load_matrices(a, tile.at(row, chunk + lane / 16));
#pragma unroll
    for (int n = 0; n < columns_at_once / 8; n += 2) {
      load_matrices(b, tile.at(column + 8 * n, chunk + lane / 8 % 2));
      multiply_add<T>(sums[n], a, {b[0], b[1]});
      multiply_add<T>(sums[n + 1], a, {b[2], b[3]});
    }
  }
}

// Grid: (num_columns / columns_at_once, depth / share).
template <typename T>
__global__ void few_rows_kernel(float* parts, const T* x, const T* weight, int num_rows,
                                int num_columns, int depth, int share) {
  extern __shared__ uint4 memory[];
  Tile tile{memory, share / 8};
  int first_column = blockIdx.x * columns_at_once, lane = threadIdx.x % 32;
  x += blockIdx.y * share, weight += int64_t(first_column) * depth + blockIdx.y * share;
  AsyncCopies copies;
  copy_half(copies, tile, x, weight, num_rows, depth, 0);
  copy_half(copies, tile, x, weight, num_rows, depth, 1);
  float sums[columns_at_once / 8][4] = {};
  copies.wait<1>();
  __syncthreads();  // the first half of all threads
  multiply_half<T>(sums, tile, 0);
  copies.wait<0>();
  __syncthreads();  // all of it
  multiply_half<T>(sums, tile, 1);
  for (int i = 0; i < 2; ++i) {
    int row = threadIdx.x / 32 * 16 + lane / 4 + 8 * i;
    if (row >= num_rows) continue;
    float* out = parts + (int64_t(blockIdx.y) * num_rows + row) * num_columns + first_column;
    for (int n = 0; n < columns_at_once / 8; ++n)
      *reinterpret_cast<float2*>(out + 8 * n + 2 * (lane % 4)) =
          make_float2(sums[n][2 * i], sums[n][2 * i + 1]);
  }
}

// parts: (depth / share, num_rows, num_columns). x: (num_rows, depth), up to 64 rows. weight:
// (num_columns, depth). num_columns: a multiple of 32. share: a multiple of 128 that divides
// depth. dtype: 1 half, 2 bfloat16.
extern "C" int multiply_few_rows(float* parts, const void* x, const void* weight, int num_rows,
                                 int num_columns, int depth, int share, int dtype,
                                 cudaStream_t stream) {
  auto launch = [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    int num_bytes = (few_rows + columns_at_once) * share * sizeof(T);
    cudaError_t error = cudaFuncSetAttribute(
        few_rows_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, num_bytes);
    if (error != cudaSuccess) return int(error);
    dim3 grid(num_columns / columns_at_once, depth / share);
    few_rows_kernel<T><<<grid, few_rows_threads, num_bytes, stream>>>(
        parts, static_cast<const T*>(x), static_cast<const T*>(weight), num_rows, num_columns,
        depth, share);
    return int(cudaGetLastError());
  };
  if (dtype == 1) return launch(static_cast<__half*>(nullptr));
  if (dtype == 2) return launch(static_cast<__nv_bfloat16*>(nullptr));
  return cudaErrorInvalidValue;
}
