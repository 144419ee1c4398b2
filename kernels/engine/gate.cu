// The two halves of a layer's wide product become one: silu(gate) * up.
#include "../early.cuh"
#include "chunk.cuh"

constexpr int gate_threads = 256;

// Grid: (num_tokens, chunks of a row / gate_threads, rounded up).
template <typename T>
__global__ void gate_kernel(T* out, const T* gate_up, int size) {
  let_next_begin();
  wait_for_previous();
  int i = blockIdx.y * gate_threads + threadIdx.x;
  if (i >= size / Chunk<T>::size) return;
  const T* row = gate_up + int64_t(blockIdx.x) * 2 * size;
  Chunk<T> gate = chunk_of(row, i), up = chunk_of(row + size, i);
  for (int j = 0; j < Chunk<T>::size; ++j) {
    float g = to_float(gate.numbers[j]);
    gate.numbers[j] = from_float<T>(g / (1.0f + __expf(-g)) * to_float(up.numbers[j]));
  }
  chunk_of(out + int64_t(blockIdx.x) * size, i) = gate;
}

// gate_up: (num_tokens, 2 * size). out: (num_tokens, size).
extern "C" int gate(void* out, const void* gate_up, int num_tokens, int size, int early,
                    int dtype, cudaStream_t stream) {
  return for_dtype(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    dim3 grid(num_tokens, (size / Chunk<T>::size + gate_threads - 1) / gate_threads);
    return launch_maybe_early<gate_kernel<T>>(early, grid, gate_threads, 0, stream,
                                              static_cast<T*>(out),
                                              static_cast<const T*>(gate_up), size);
  });
}
