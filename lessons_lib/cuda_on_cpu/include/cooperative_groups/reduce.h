// cg::reduce: combines one value of each thread of a tile. All threads get the result.
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {

template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
// Gives the smaller value.
template <class T>
struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
// Gives the larger value.
template <class T>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};

// All threads of the tile call it at the same line. The order of the operations may change.
template <unsigned Size, class Parent, class T, class Operation>
T reduce(const thread_block_tile<Size, Parent>& tile, T value, Operation&& op,
         CUDA_ON_CPU_HERE) {
  for (unsigned distance = Size / 2; distance > 0; distance /= 2)
    value = op(value, tile.shuffle(cuda_on_cpu::Shuffle::exclusive_or, value, int(distance),
                                   "cg::reduce", file, line));
  return value;
}
template <class T, class Operation>
T reduce(const coalesced_group&, T value, Operation&&) {
  return value;
}

}  // namespace cooperative_groups
