#pragma once

#include "stages.cuh"
#ifdef __CUDACC__
#include <cuda.h>
#endif

// A cache as the GPU's copy engine sees it: a tensor of four dimensions. One instruction of
// one thread copies a box of it: block_size rows of one block and KV head, 64 dims each. The
// engine computes the addresses and the places in shared memory by itself.
struct CacheMap {
#ifdef __CUDACC__
  CUtensorMap map;
#else
  const Number* cache;
  int num_kv_heads;
#endif
};

#ifdef __CUDACC__
// The driver makes the map. It is asked for its function, so that nothing has to be linked.
inline cudaError_t map_cache(CacheMap& to, const void* cache, int num_blocks,
                             int num_kv_heads) {
  static_assert(block_size <= 256 && stage_keys % block_size == 0);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                       12000, cudaEnableDefault, &found);
  if (error != cudaSuccess) return error;
  if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  cuuint64_t sizes[4] = {head_size, cuuint64_t(num_kv_heads), block_size,
                         cuuint64_t(num_blocks)};
  cuuint64_t row = head_size * sizeof(Number), token = row * num_kv_heads;
  cuuint64_t strides[3] = {row, token, token * block_size};  // in bytes; not the dims'
  cuuint32_t box[4] = {8 * panel_chunks, 1, block_size, 1}, steps[4] = {1, 1, 1, 1};
  bool half = std::is_same_v<Number, __half>;
  auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  CUresult result = encode(
      &to.map, half ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
      const_cast<void*>(cache), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
#else
inline cudaError_t map_cache(CacheMap& to, const void* cache, int, int num_kv_heads) {
  to = {static_cast<const Number*>(cache), num_kv_heads};
  return cudaSuccess;
}
#endif

// The copies of one lane.
struct BoxCopies {
#ifdef __CUDACC__
  // Copies a box to `to`, where its first row begins. `barrier` hears of its bytes.
  __device__ void copy(uint4* to, const CacheMap& map, int block, int kv_head, int panel,
                       Barrier& barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(uint32_t(__cvta_generic_to_shared(to))),
        "l"(&map.map), "r"(panel * panel_chunks * 8), "r"(kv_head), "r"(0), "r"(block),
        "r"(barrier.address())
        : "memory");
  }
  __device__ void arrive() {}
#else
  // On the CPU a lane keeps its copies in mind, and there are NaNs until they arrive.
  struct Copy {
    uint4* to;
    const Number* from;
    int step;  // from a row to the next
  };
  Copy copies[2];
  int count = 0;
  __device__ void copy(uint4* to, const CacheMap& map, int block, int kv_head, int panel,
                       Barrier&) {
    for (int i = 0; i < block_size * panel_chunks; ++i) to[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
    int64_t row = int64_t(block) * block_size * map.num_kv_heads + kv_head;
    copies[count++] = {to, map.cache + row * head_size + panel * panel_chunks * 8,
                       map.num_kv_heads * head_size};
  }
  __device__ void arrive() {
    for (Copy* copy = copies; copy < copies + count; ++copy)
      for (int row = 0; row < block_size; ++row)
        for (int chunk = 0; chunk < panel_chunks; ++chunk)
          copy->to[row * panel_chunks + (chunk ^ row % 8)] =
              reinterpret_cast<const uint4*>(copy->from + int64_t(row) * copy->step)[chunk];
    count = 0;
  }
#endif
};
