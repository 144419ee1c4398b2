#include <new>

constexpr int not_set = -7777;  // what a Share's numbers are before share_of() sets them
constexpr int no_item = -1;

// out: (8 + rows.count(),): the six numbers of the block's Share, its num_parts() and
// num_items(), and the row of each item. The thread and its own block are others than `block`.
__global__ void share_kernel(Rows rows, Division division, int block, int* out) {
  alignas(Share) int memory[sizeof(Share) / sizeof(int)];
  for (int& number : memory) number = not_set;
  asm volatile("" : : "r"(memory) : "memory");  // all of it is in memory
  Share* share = new (memory) Share(share_of(rows, division, block));
  asm volatile("" : : "r"(memory) : "memory");
  int num_items = share->num_items();
  *out++ = share->begin, *out++ = share->end;
  *out++ = share->first_row, *out++ = share->last_row;
  *out++ = share->is_first_cut, *out++ = share->is_last_cut;
  *out++ = share->num_parts(), *out++ = num_items;
  for (int n = 0; n < rows.count(); ++n) *out++ = n < num_items ? share->row(n) : no_item;
}

extern "C" int find_share(const int* begins, int num_seqs, int groups, int num_blocks,
                          int rows_each, int pieces, int block, int* out,
                          cudaStream_t stream) {
  Rows rows = {begins, num_seqs, groups};
  Division division = {num_blocks, rows_each, pieces};
  share_kernel<<<1, 1, 0, stream>>>(rows, division, block, out);
  return cudaGetLastError();
}
