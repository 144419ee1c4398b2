#include <cstdint>

// AsyncCopies for the check. A GPU makes a copy at some time between copy() and the wait() for
// it. Here it is made at one of these two ends, and notes are taken of what is under way while
// a stage is in use. A copy has the opposite sign: the sums of what is in `tiles` itself
// are not those of what comes into the stages.
static bool copies_at_once;
constexpr int stages_of_a_warp = 4;

struct AsyncCopies {
  struct Copy {
    uint4* to;
    const uint4* from;
  };
  static constexpr int most = 512;  // two objects fit into a frame
  Copy copies[most];
  int groups[most], done = 0, asked = 0, num_groups = 0;

  AsyncCopies();
  ~AsyncCopies();
  __device__ void copy(uint4* to, const void* from, bool there) {
    if (asked == most) return;
    copies[asked++] = {to, there ? static_cast<const uint4*>(from) : nullptr};
    if (copies_at_once) make(copies[asked - 1]);
  }
  __device__ void close_group() {
    if (num_groups < most) groups[num_groups++] = asked;
  }
  template <int n>
  __device__ void wait() {
    int last = num_groups > n ? groups[num_groups - n - 1] : 0;
    for (; done < last; ++done) {
      if (!copies_at_once) make(copies[done]);
    }
  }
  __device__ static void make(Copy copy) {
    constexpr uint32_t sign = 0x80000000;
    uint4 bits = copy.from ? *copy.from : make_uint4(0, 0, 0, 0);
    *copy.to = make_uint4(bits.x ^ sign, bits.y ^ sign, bits.z ^ sign, bits.w ^ sign);
  }
};

// What one thread does with its stages.
struct Notes {
  const AsyncCopies* copies = nullptr;
  int tiles_left = 0, least_under_way = 0, used = 0;
  bool in_use = false, waited_early = false;

  __device__ void use(const char* stage, int bytes) {
    int under_way = 0, copies_of_a_tile = bytes / 16 / 32;
    for (int i = copies ? copies->done : 0; copies && i < copies->asked; ++i) {
      const char* to = reinterpret_cast<const char*>(copies->copies[i].to);
      bool into_this = to >= stage && to < stage + bytes;
      in_use |= into_this;
      under_way += !into_this;
    }
    // Near the end there are not so many tiles left that could be under way.
    ++used;
    if (--tiles_left >= stages_of_a_warp - 1) {
      least_under_way = min(least_under_way, under_way / copies_of_a_tile);
      int ahead = copies ? copies->asked - used * copies_of_a_tile : 0;
      waited_early |= ahead > under_way;
    }
  }
};
static Notes notes[64];
inline AsyncCopies::AsyncCopies() { notes[threadIdx.x].copies = this; }
inline AsyncCopies::~AsyncCopies() {
  if (notes[threadIdx.x].copies == this) notes[threadIdx.x].copies = nullptr;
}

template <typename Stage>
__device__ float add_up(const Stage& stage) {
  notes[threadIdx.x].use(reinterpret_cast<const char*>(&stage), sizeof stage);
  return column_sum(stage);
}
