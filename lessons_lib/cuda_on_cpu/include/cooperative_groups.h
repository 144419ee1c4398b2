// Cooperative groups. A group is an object for threads that wait for each other: a block, a
// tile of 1 to 32 neighbouring lanes of a warp, or the lanes that run together. Where a
// function of a group does the same as an intrinsic, it gives the same reports.
#pragma once
#include "../intrinsics.h"

namespace cooperative_groups {

// The threads of a block. All of them must reach its sync().
class thread_block {
 public:
  static void sync(CUDA_ON_CPU_HERE) { cuda_on_cpu::block_barrier("block.sync", file, line); }
  static unsigned thread_rank() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned size() { return num_threads(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 dim_threads() { return blockDim; }
  static dim3 group_dim() { return blockDim; }
};

inline thread_block this_thread_block() { return {}; }

// For groups that cannot be larger than a warp. A mask has a bit for each lane.
namespace lanes {
inline unsigned own() { return thread_block::thread_rank() % 32; }
inline unsigned first_of(unsigned size) { return own() & ~(size - 1); }
inline unsigned mask_of(unsigned size) {
  return (size == 32 ? ~0u : (1u << size) - 1) << first_of(size);
}
constexpr bool can_be_tile(unsigned size) {
  return size >= 1 && size <= 32 && (size & (size - 1)) == 0;
}
}  // namespace lanes

// A tile of a group of type Parent. The parameter thread_block_tile<size> takes any tile of
// that size.
template <unsigned Size, class Parent = void>
class thread_block_tile {
  static_assert(lanes::can_be_tile(Size),
                "on the CPU a tile has 1, 2, 4, 8, 16 or 32 threads");

 public:
  template <class Of>
  explicit thread_block_tile(const Of& parent, decltype(parent.thread_rank()) = 0)
      : meta_group_rank_(parent.thread_rank() / Size),
        meta_group_size_((parent.size() + Size - 1) / Size) {}
  template <class Other>
  thread_block_tile(const thread_block_tile<Size, Other>& other)
      : meta_group_rank_(other.meta_group_rank()), meta_group_size_(other.meta_group_size()) {}

  static void sync(CUDA_ON_CPU_HERE) {
    cuda_on_cpu::warp_barrier(lanes::mask_of(Size), "tile.sync", file, line);
  }
  static unsigned thread_rank() { return lanes::own() % Size; }
  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  unsigned meta_group_rank() const { return meta_group_rank_; }  // this tile's number
  // how many tiles the parent has
  unsigned meta_group_size() const { return meta_group_size_; }

  template <class T>
  T shfl(T value, int rank, CUDA_ON_CPU_HERE) const {
    return shuffle(cuda_on_cpu::Shuffle::index, value, rank, "tile.shfl", file, line);
  }
  template <class T>
  T shfl_up(T value, unsigned distance, CUDA_ON_CPU_HERE) const {
    return shuffle(cuda_on_cpu::Shuffle::up, value, int(distance), "tile.shfl_up", file, line);
  }
  template <class T>
  T shfl_down(T value, unsigned distance, CUDA_ON_CPU_HERE) const {
    return shuffle(cuda_on_cpu::Shuffle::down, value, int(distance), "tile.shfl_down", file,
                   line);
  }
  template <class T>
  T shfl_xor(T value, unsigned bits, CUDA_ON_CPU_HERE) const {
    return shuffle(cuda_on_cpu::Shuffle::exclusive_or, value, int(bits), "tile.shfl_xor", file,
                   line);
  }
  int any(int predicate, CUDA_ON_CPU_HERE) const {
    return votes(predicate, "tile.any", file, line) != 0;
  }
  int all(int predicate, CUDA_ON_CPU_HERE) const {
    return votes(!predicate, "tile.all", file, line) == 0;
  }
  unsigned ballot(int predicate, CUDA_ON_CPU_HERE) const {
    return votes(predicate, "tile.ballot", file, line);
  }

  // Not in CUDA. cg::reduce calls this several times at one line.
  template <class T>
  T shuffle(cuda_on_cpu::Shuffle kind, T value, int distance, const char* what,
            const char* file, int line) const {
    static_assert(sizeof(T) <= 32 && std::is_trivially_copyable<T>::value,
                  "a shuffle takes up to 32 bytes");
    T result;
    cuda_on_cpu::shuffle(kind, lanes::mask_of(Size), &value, &result, sizeof(T), distance,
                         Size, what, file, line);
    return result;
  }

 private:
  // A bit for each thread of the tile, starting with rank 0.
  unsigned votes(int predicate, const char* what, const char* file, int line) const {
    return cuda_on_cpu::ballot(lanes::mask_of(Size), predicate, what, file, line) >>
           lanes::first_of(Size);
  }

  unsigned meta_group_rank_, meta_group_size_;
};

template <unsigned Size>
thread_block_tile<Size, thread_block> tiled_partition(const thread_block& parent) {
  return thread_block_tile<Size, thread_block>(parent);
}
template <unsigned Size, unsigned ParentSize, class Grandparent>
thread_block_tile<Size, thread_block_tile<ParentSize, Grandparent>> tiled_partition(
    const thread_block_tile<ParentSize, Grandparent>& parent) {
  static_assert(Size < ParentSize, "a tile is smaller than the tile that it is a part of");
  return thread_block_tile<Size, thread_block_tile<ParentSize, Grandparent>>(parent);
}
inline thread_block_tile<1> this_thread() {
  return tiled_partition<1>(tiled_partition<2>(this_thread_block()));
}

// The lanes that run together. Which lanes these are is left to chance: CUDA promises only
// that the caller is one of them. Here the caller is alone (as in __activemask()).
class coalesced_group {
 public:
  static void sync() {}
  static unsigned thread_rank() { return 0; }
  static unsigned num_threads() { return 1; }
  static unsigned size() { return 1; }
  static unsigned meta_group_rank() { return 0; }
  static unsigned meta_group_size() { return 1; }
  template <class T>
  T shfl(T value, int) const {
    return value;
  }
  template <class T>
  T shfl_up(T value, int) const {
    return value;
  }
  template <class T>
  T shfl_down(T value, unsigned) const {
    return value;
  }
  int any(int predicate) const { return predicate != 0; }
  int all(int predicate) const { return predicate != 0; }
  unsigned ballot(int predicate) const { return predicate != 0; }
};

inline coalesced_group coalesced_threads() { return {}; }

class thread_group;
thread_group tiled_partition(const thread_group& parent, unsigned size, CUDA_ON_CPU_HERE);

// Any of these groups, for functions that are not templates. A tile's size is then known only
// when the kernel runs.
class thread_group {
 public:
  thread_group(const thread_block&) : size_(0) {}
  thread_group(const coalesced_group&) : size_(1) {}
  thread_group(const thread_group&) = default;
  thread_group& operator=(const thread_group&) = delete;  // a GPU does not have it either
  void sync(CUDA_ON_CPU_HERE) const {
    if (is_block()) cuda_on_cpu::block_barrier("group.sync", file, line);
    else cuda_on_cpu::warp_barrier(lanes::mask_of(size_), "group.sync", file, line);
  }
  unsigned long long thread_rank() const {
    return is_block() ? thread_block::thread_rank() : lanes::own() % size_;
  }
  // The last tile of a block may have fewer threads. CUDA 13 declares num_threads() but does
  // not define it.
  unsigned long long size() const {
    unsigned all = thread_block::size(),
             first = is_block() ? 0 : thread_block::thread_rank() / size_ * size_;
    return is_block() || all - first < size_ ? all - first : size_;
  }

 private:
  friend thread_group tiled_partition(const thread_group& parent, unsigned size,
                                      const char* file, int line);
  explicit thread_group(unsigned size) : size_(size) {}
  bool is_block() const { return size_ == 0; }
  unsigned size_;  // 0 means the whole block
};

inline thread_group tiled_partition(const thread_group& parent, unsigned size,
                                    const char* file, int line) {
  if (!lanes::can_be_tile(size))  // a GPU ends the kernel here
    cuda_on_cpu::assertion_failed(
        "tiled_partition makes tiles of 1, 2, 4, 8, 16 or 32 threads", file, line);
  return parent.is_block() || size < parent.size_ ? thread_group(size) : parent;
}

template <class Group>
void sync(const Group& group, CUDA_ON_CPU_HERE) {
  group.sync(file, line);
}
inline void sync(const coalesced_group&) {}
template <class Group>
auto thread_rank(const Group& group) {
  return group.thread_rank();
}
template <class Group>
auto group_size(const Group& group) {
  return group.num_threads();
}

// A whole-grid group needs blocks that all run at the same time. Here they do not.
#define CUDA_ON_CPU_NO_GROUP(type, function)                                        \
  struct type {                                                                     \
    void sync() const;                                                              \
    unsigned long long thread_rank() const, num_threads() const, size() const;      \
  };                                                                                \
  template <class... None>                                                          \
  type function(None...) {                                                          \
    static_assert(sizeof...(None) > 99, #function                                   \
                  "() is not for the CPU stand-in, whose blocks run one after the " \
                  "other; it needs a GPU");                                         \
    return {};                                                                      \
  }
CUDA_ON_CPU_NO_GROUP(grid_group, this_grid)
CUDA_ON_CPU_NO_GROUP(cluster_group, this_cluster)
CUDA_ON_CPU_NO_GROUP(multi_grid_group, this_multi_grid)

}  // namespace cooperative_groups
