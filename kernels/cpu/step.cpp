// The functions that Python calls. Tensors are contiguous, and whole numbers have 64 bits.
#include <type_traits>

#include "attend.h"
#include "between.h"
#include "few_rows.h"

// Calls `work` with a null pointer of the type of the pool's numbers.
template <typename Work>
void for_numbers(int64_t bits, Work work) {
  if (bits == 16) work(static_cast<Bfloat16*>(nullptr));
  else work(static_cast<float*>(nullptr));
}

// y: (num_rows, num_features). x: (num_rows, size). weight: (num_features, size), in numbers
// of `bits` bits. Where these are 8, a row of W counts `scales` times: (num_features,).
extern "C" void product(float* y, const float* x, const void* weight, const float* scales,
                        int64_t num_rows, int64_t num_features, int64_t size, int64_t bits) {
  auto with = [&](auto* w) {
    switch (num_rows) {
      case 1:
        few_rows<1>(y, x, w, num_features, size);
        break;
      case 2:
        few_rows<2>(y, x, w, num_features, size);
        break;
      case 3:
        few_rows<3>(y, x, w, num_features, size);
        break;
      case 4:
        few_rows<4>(y, x, w, num_features, size);
        break;
    }
  };
  if (bits == 32) with(static_cast<const float*>(weight));
  if (bits == 16) with(static_cast<const Bfloat16*>(weight));
  if (bits != 8) return;
  with(static_cast<const int8_t*>(weight));
  for (int64_t i = 0; i < num_rows * num_features; ++i) y[i] *= scales[i % num_features];
}

// out, residual, x: (num_tokens, size); x may be null. weight: (size,).
extern "C" void add_norms(float* out, float* residual, const float* x, const float* weight,
                          int64_t num_tokens, int64_t size, float epsilon) {
#pragma omp parallel for if (num_tokens > 8)
  for (int64_t token = 0; token < num_tokens; ++token)
    add_norm(out + token * size, residual + token * size, x ? x + token * size : nullptr,
             weight, size, epsilon);
}

// qkv: (num_tokens, num_q_heads + 2 * num_kv_heads, head_size). k_cache, v_cache: (num_slots,
// num_kv_heads, head_size). q_weight, k_weight: (head_size,), of the norms, or null.
// turns: (num_positions, head_size / 2, 2), cosine and sine. positions, slots: (num_tokens,).
extern "C" void rotate(float* qkv, void* k_cache, void* v_cache, const float* q_weight,
                       const float* k_weight, const float* turns, const int64_t* positions,
                       const int64_t* slots, int64_t num_tokens, int64_t num_q_heads,
                       int64_t num_kv_heads, int64_t head_size, float epsilon, int64_t bits) {
  for_numbers(bits, [&](auto* type) {
    auto *keys = static_cast<decltype(type)>(k_cache),
         *values = static_cast<decltype(type)>(v_cache);
    int64_t row = (num_q_heads + 2 * num_kv_heads) * head_size,
            slot = num_kv_heads * head_size;
#pragma omp parallel for if (num_tokens > 8)
    for (int64_t token = 0; token < num_tokens; ++token)
      rotate_token(qkv + token * row, keys + slots[token] * slot, values + slots[token] * slot,
                   q_weight, k_weight, turns + positions[token] * head_size, num_q_heads,
                   num_kv_heads, head_size, epsilon);
  });
}

// out: (num_tokens, num_q_heads, head_size). q: likewise, its rows q_stride numbers apart.
// k_cache, v_cache: (num_blocks, block_size, num_kv_heads, head_size).
// block_table: (num_tokens, max_blocks). context_lens: (num_tokens,), the keys of each query.
extern "C" void attend(float* out, const float* q, int64_t q_stride, const void* k_cache,
                       const void* v_cache, const int* block_table, const int* context_lens,
                       int64_t num_tokens, int64_t max_blocks, int64_t block_size,
                       int64_t num_q_heads, int64_t num_kv_heads, int64_t head_size,
                       int64_t bits) {
  for_numbers(bits, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    int64_t group = num_q_heads / num_kv_heads;
    int64_t stride = num_kv_heads * head_size;
    float scale = 1.0f / std::sqrt(float(head_size));
#pragma omp parallel for schedule(dynamic)
    for (int64_t item = 0; item < int64_t(num_tokens) * num_kv_heads; ++item) {
      int64_t token = item / num_kv_heads, kv_head = item % num_kv_heads;
      std::vector<Query> queries(group);
      std::vector<float> scores(block_size);
      for (int64_t i = 0; i < group; ++i) {
        int64_t head = kv_head * group + i;
        queries[i].q = q + token * q_stride + head * head_size;
        queries[i].o = out + (token * num_q_heads + head) * head_size;
        std::fill_n(queries[i].o, head_size, 0.0f);
      }
      for (int64_t begin = 0; begin < context_lens[token]; begin += block_size) {
        int64_t block = block_table[token * max_blocks + begin / block_size];
        int64_t from = block * block_size * stride + kv_head * head_size;
        int num_valid = int(std::min(block_size, context_lens[token] - begin));
        for (Query& query : queries)
          attend_block(query, scores.data(), static_cast<const T*>(k_cache) + from,
                       static_cast<const T*>(v_cache) + from, num_valid, stride, head_size,
                       scale);
      }
      for (Query& query : queries)
        for (int64_t i = 0; i < head_size; ++i) query.o[i] /= query.l;
    }
  });
}
