// y = x · Wᵀ for an x of few rows. Such a product reads W once and does little with it, so all
// that counts is that reads of W are always under way.
//   - A block takes 16 rows of W. Its warps share out the columns in tiles of 128. Each warp
//     is a pipeline of its own, and no warp waits for another before the sums are added up.
//   - The tensor cores take 16 rows of W with 8 rows of x. So one kernel serves 1 to 16 rows.
//     Of the rows past the last one, nobody reads the sums.
//   - W depends on no other kernel. A block that begins early asks for its first tiles of W,
//     and only then waits for x.
#include "../ladder/async_copy.cuh"
#include "../ladder/matrix.cuh"
#include "../early.cuh"

constexpr int tile_features = 16;  // rows of W
constexpr int tile_columns = 128;
constexpr int tile_chunks = tile_columns / 8;  // of 16 bytes, in a row of a tile
constexpr int num_stages = 2;
constexpr int most_warps = 16;
constexpr int bytes_beside = 1024;  // of shared memory, which each block takes in addition

template <typename T>
struct FewRowsParams {
  T* y;        // (num_rows, num_features)
  const T* x;  // (num_rows, size)
  const T* w;  // (num_features, size)
  int num_rows, num_features, size;

  // Of a warp's stage: its rows of W, then those of x.
  __host__ __device__ int stage_chunks() const {
    return (tile_features + num_rows) * tile_chunks;
  }
};

// Where a stage has a chunk of a row. Odd rows swap their halves of 128 bytes. So eight lanes
// that read four chunks of an even row and four of an odd one find them in 32 banks.
__device__ inline int place(int row, int chunk) {
  return row * tile_chunks + (chunk ^ (row % 2 * 4));
}

// A warp's tiles: `warp`, warp + num_warps, … along the columns.
template <typename T>
struct Pipeline {
  const FewRowsParams<T>& params;
  uint4* memory;  // num_stages stages
  int lane, warp, num_warps;
  AsyncCopies copies;

  __device__ int num_tiles() const {
    return (params.size / tile_columns - warp + num_warps - 1) / num_warps;
  }
  __device__ uint4* stage(int tile) const {
    return memory + tile % num_stages * params.stage_chunks();
  }
  // A chunk of 8 numbers that belongs to a tile.
  __device__ const T* column(const T* rows, int row, int tile, int chunk) const {
    return rows + int64_t(row) * params.size + (warp + tile * num_warps) * tile_columns +
           chunk * 8;
  }
  __device__ void fetch_w(int tile) {
    if (tile >= num_tiles()) return;
    const T* w = params.w + int64_t(blockIdx.x) * tile_features * params.size;
    fetch(stage(tile), w, tile_features, tile);
  }
  // Closes the stage's group, in which there may be nothing: wait() counts groups.
  __device__ void fetch_x(int tile) {
    if (tile < num_tiles())
      fetch(stage(tile) + tile_features * tile_chunks, params.x, params.num_rows, tile);
    copies.close_group();
  }
  __device__ void fetch(uint4* to, const T* rows, int num_rows, int tile) {
    int chunk = lane % tile_chunks;
#pragma unroll
    for (int row = lane / tile_chunks; row < num_rows; row += 32 / tile_chunks)
      copies.copy(to + place(row, chunk), column(rows, row, tile, chunk), true);
  }

  // Adds a tile's products. In which order the columns come does not matter, as long as W and
  // x have the same. So a lane takes 16 bytes of a row, and uses them for two products.
  template <int num_tiles_of_x>
  __device__ void multiply(float (&sums)[num_tiles_of_x][4], int tile) const {
    const uint4 *w = stage(tile), *x = w + tile_features * tile_chunks;
    int row = lane / 4;
#pragma unroll
    for (int chunk = lane % 4; chunk < tile_chunks; chunk += 4) {
      uint4 upper = w[place(row, chunk)], lower = w[place(row + 8, chunk)];
#pragma unroll
      for (int n = 0; n < num_tiles_of_x; ++n) {
        uint4 of_x = x[place(min(8 * n + row, params.num_rows - 1), chunk)];
        multiply_add<T>(sums[n], {upper.x, lower.x, upper.y, lower.y}, {of_x.x, of_x.y});
        multiply_add<T>(sums[n], {upper.z, lower.z, upper.w, lower.w}, {of_x.z, of_x.w});
      }
    }
  }
};

// Adds up the sums of all warps, which each warp leaves in its own stages.
template <int num_tiles_of_x, typename T>
__device__ void add_up(const FewRowsParams<T>& params, const float (&sums)[num_tiles_of_x][4],
                       uint4* memory, int warp_chunks) {
  constexpr int pitch = tile_features + 4;  // so that lanes write to different banks
  int lane = threadIdx.x % 32, num_warps = blockDim.x / 32;
  float* own = reinterpret_cast<float*>(memory + threadIdx.x / 32 * warp_chunks);
  for (int n = 0; n < num_tiles_of_x; ++n)
    for (int i = 0; i < 4; ++i) {
      int row = 8 * n + lane % 4 * 2 + i % 2, feature = lane / 4 + i / 2 * 8;
      if (row < params.num_rows) own[row * pitch + feature] = sums[n][i];
    }
  __syncthreads();
  for (int i = threadIdx.x; i < params.num_rows * tile_features; i += blockDim.x) {
    int row = i / tile_features, feature = i % tile_features;
    float sum = 0.0f;
    for (int warp = 0; warp < num_warps; ++warp)
      sum += reinterpret_cast<float*>(memory + warp * warp_chunks)[row * pitch + feature];
    params.y[int64_t(row) * params.num_features + blockIdx.x * tile_features + feature] =
        from_float<T>(sum);
  }
}

// Grid: num_features / 16 blocks. x has at most 8 * num_tiles_of_x rows.
template <typename T, int num_tiles_of_x>
__global__ void __launch_bounds__(most_warps * 32) few_rows_kernel(FewRowsParams<T> params) {
  extern __shared__ uint4 memory[];
  let_next_begin();
  int warp = threadIdx.x / 32, warp_chunks = num_stages * params.stage_chunks();
  Pipeline<T> pipeline{params, memory + warp * warp_chunks, int(threadIdx.x % 32), warp,
                       int(blockDim.x / 32)};
  for (int tile = 0; tile < num_stages; ++tile) pipeline.fetch_w(tile);
  wait_for_previous();
  for (int tile = 0; tile < num_stages; ++tile) pipeline.fetch_x(tile);

  float sums[num_tiles_of_x][4] = {};
  for (int tile = 0; tile < pipeline.num_tiles(); ++tile) {
    pipeline.copies.template wait<num_stages - 1>();
    __syncwarp();  // the copies of all lanes are there
    pipeline.multiply(sums, tile);
    __syncwarp();  // all lanes have read the stage, and it can be filled again
    pipeline.fetch_w(tile + num_stages);
    pipeline.fetch_x(tile + num_stages);
  }
  add_up(params, sums, memory, warp_chunks);
}

// What a card has.
struct Card {
  int multiprocessors;
  int shared_bytes;  // the most that a block may ask for
};

// As many warps as make the whole shared memory a buffer for W, with all blocks on the card at
// once if there are at most six for each multiprocessor. No warp is idle in the last round.
inline int choose_warps(int num_features, int size, int warp_bytes, Card card) {
  int num_blocks = num_features / tile_features;
  int at_once = min((num_blocks + card.multiprocessors - 1) / card.multiprocessors, 6);
  int bytes = (card.shared_bytes + bytes_beside) / at_once - bytes_beside;
  int num_tiles = size / tile_columns, fit = min(bytes / warp_bytes, most_warps);
  int rounds = (num_tiles + max(fit, 1) - 1) / max(fit, 1);
  return (num_tiles + rounds - 1) / rounds;
}

template <typename T, int num_tiles_of_x>
int launch_few_rows(const FewRowsParams<T>& params, Card card, bool early,
                    cudaStream_t stream) {
  constexpr auto kernel = few_rows_kernel<T, num_tiles_of_x>;
  int warp_bytes = num_stages * params.stage_chunks() * int(sizeof(uint4));
  int num_warps = choose_warps(params.num_features, params.size, warp_bytes, card);
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           card.shared_bytes);
  if (error != cudaSuccess) return error;
  return launch_maybe_early<kernel>(early, params.num_features / tile_features, 32 * num_warps,
                                    num_warps * warp_bytes, stream, params);
}

template <typename T>
int product_of(void* y, const void* x, const void* w, int num_rows, int num_features, int size,
               Card card, bool early, cudaStream_t stream) {
  FewRowsParams<T> params{static_cast<T*>(y),
                          static_cast<const T*>(x),
                          static_cast<const T*>(w),
                          num_rows,
                          num_features,
                          size};
  return num_rows <= 8 ? launch_few_rows<T, 1>(params, card, early, stream)
                       : launch_few_rows<T, 2>(params, card, early, stream);
}

// x: (num_rows, size), 1 to 16 rows, and a size that is a multiple of 128. w: (num_features,
// size), a multiple of 16 features. y: (num_rows, num_features). dtype: 1 half, 2 bfloat16.
extern "C" int few_rows(void* y, const void* x, const void* w, int num_rows, int num_features,
                        int size, int multiprocessors, int shared_bytes, int early, int dtype,
                        cudaStream_t stream) {
  auto product = dtype == 1 ? product_of<__half> : product_of<__nv_bfloat16>;
  return product(y, x, w, num_rows, num_features, size, {multiprocessors, shared_bytes}, early,
                 stream);
}
