static_assert(num_stages == stages_of_a_warp && tile_floats == 256,
              "leave the given constants as they are");

// Two warps with tiles of their own: first_tiles[w] … first_tiles[w + 1] - 1. All stages hold
// `before` at first.
__global__ void stages_kernel(float* out_sums, int* out_under_way, int* out_waited_early,
                              const float* tiles, const int* first_tiles, float before) {
  Stage* of_first_warp;
  Stage* of_second_warp;
  {
    __shared__ Stage stages[num_stages];  // the name that reports give
    of_first_warp = stages;
  }
  {
    __shared__ Stage stages[num_stages];
    of_second_warp = stages;
  }
  Stage* stages = threadIdx.x < 32 ? of_first_warp : of_second_warp;
  uint32_t bits = __float_as_uint(before);
  uint4 chunk = make_uint4(bits, bits, bits, bits);
  for (int stage = 0; stage < num_stages; ++stage) {
    for (int i = threadIdx.x % 32; i < tile_floats / 4; i += 32)
      stages[stage].chunks[i] = chunk;
  }
  __syncthreads();
  int first = first_tiles[threadIdx.x / 32];
  int num_tiles = first_tiles[threadIdx.x / 32 + 1] - first;
  notes[threadIdx.x] = {nullptr, num_tiles, num_stages - 1};
  out_sums[threadIdx.x] = staged_sum(stages, tiles + first * tile_floats, num_tiles);
  out_under_way[threadIdx.x] = notes[threadIdx.x].least_under_way;
  out_waited_early[threadIdx.x] = notes[threadIdx.x].waited_early;
}

extern "C" int stages(float* out_sums, int* out_under_way, int* out_waited_early,
                      const float* tiles, const int* first_tiles, int num_warps, float before,
                      bool at_once, cudaStream_t stream) {
  copies_at_once = at_once;
  for (Notes& note : notes) note = {};
  stages_kernel<<<1, 32 * num_warps, 0, stream>>>(out_sums, out_under_way, out_waited_early,
                                                  tiles, first_tiles, before);
  return cudaGetLastError();
}

// For each thread of the launch before: whether a copy into a stage was under way while the
// stage was in use.
__global__ void in_use_kernel(int* out) { out[threadIdx.x] = notes[threadIdx.x].in_use; }

extern "C" int stages_in_use(int* out, cudaStream_t stream) {
  in_use_kernel<<<1, 64, 0, stream>>>(out);
  return cudaGetLastError();
}
