// Runs the course's paged kernel, and a kernel with a race, where there is no Python for the
// platform: `driver` says what it found. Linked with the runtime and the rewritten kernels.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

struct PagedAttentionParams {
  void* out;
  const void *q, *k_cache, *v_cache;
  const int *block_table, *context_lens;
  float* scores;
  int64_t q_stride;
  int num_seqs, num_q_heads, num_kv_heads, head_size, block_size, max_blocks_per_seq,
      max_context_len, dtype;
  float scale;
};

extern "C" {
int paged_attention(PagedAttentionParams params, void* stream);
int shift(const float* a, float* out, int n, void* stream);
void cuda_on_cpu_options(int seed, int os_threads, long long step_limit);
void cuda_on_cpu_clear();
const char* cuda_on_cpu_report();
#if CHECKED
void* cuda_on_cpu_tensor(const char* name, void* data, size_t bytes, int element_size,
                         int kind);
void cuda_on_cpu_finish();
void cuda_on_cpu_release(int copy_back);
#else
void* cuda_on_cpu_tensor(const char*, void* data, size_t, int, int) { return data; }
void cuda_on_cpu_finish() {}
void cuda_on_cpu_release(int) {}
#endif
}

constexpr int num_seqs = 3, num_q_heads = 6, num_kv_heads = 2, head_size = 64, block_size = 16,
              max_blocks = 4, num_blocks = 9;
const std::vector<int> context_lens = {0, 33, 64};
const std::vector<int> block_table = {-1, -1, -1, -1, 7, 2, 5, -1, 0, 8, 3, 6};

template <class T>
T* watched(const char* name, std::vector<T>& values, int kind) {
  return static_cast<T*>(
      cuda_on_cpu_tensor(name, values.data(), values.size() * sizeof(T), sizeof(T), kind));
}

std::vector<float> numbers(size_t count) {
  static unsigned state = 1;
  std::vector<float> values(count);
  for (float& value : values)
    state = state * 1664525u + 1013904223u, value = float(state >> 8) / float(1 << 23) - 1.0f;
  return values;
}

// Attention of one head by the definition, in double precision: one element of its output.
double expected(const std::vector<float>& q, const std::vector<float>& k,
                const std::vector<float>& v, int seq, int head, int i) {
  auto row = [&](int token) {
    int block = block_table[seq * max_blocks + token / block_size];
    return ((size_t(block) * block_size + token % block_size) * num_kv_heads +
            head / (num_q_heads / num_kv_heads)) *
           head_size;
  };
  double sum = 0, result = 0;
  for (int token = 0; token < context_lens[seq]; ++token) {
    double score = 0;
    for (int d = 0; d < head_size; ++d)
      score += double(q[(seq * num_q_heads + head) * head_size + d]) * k[row(token) + d];
    double weight = std::exp(score / 8);
    sum += weight, result += weight * v[row(token) + i];
  }
  return sum > 0 ? result / sum : 0;
}

int main() {
  size_t cache = size_t(num_blocks) * block_size * num_kv_heads * head_size;
  std::vector<float> q = numbers(num_seqs * num_q_heads * head_size), k = numbers(cache),
                     v = numbers(cache), out(q.size(), NAN);
  std::vector<int> table = block_table, lens = context_lens;
  for (int seed = 0; seed < 3; ++seed) {
    cuda_on_cpu_clear(), cuda_on_cpu_options(seed, 2, 100'000'000);
    PagedAttentionParams params = {watched("out", out, 2),
                                   watched("q", q, 0),
                                   watched("k_cache", k, 0),
                                   watched("v_cache", v, 0),
                                   watched("block_table", table, 8),
                                   watched("context_lens", lens, 8),
                                   nullptr,
                                   num_q_heads * head_size,
                                   num_seqs,
                                   num_q_heads,
                                   num_kv_heads,
                                   head_size,
                                   block_size,
                                   max_blocks,
                                   64,
                                   0,
                                   0.125f};
    int code = paged_attention(params, nullptr);
    cuda_on_cpu_finish(), cuda_on_cpu_release(1);
    if (code) return printf("error %d\n%s", code, cuda_on_cpu_report()), 1;
    double worst = 0;
    for (int seq = 0; seq < num_seqs; ++seq)
      for (int head = 0; head < num_q_heads; ++head)
        for (int i = 0; i < head_size; ++i)
          worst = std::fmax(worst, std::fabs(out[(seq * num_q_heads + head) * head_size + i] -
                                             expected(q, k, v, seq, head, i)));
    printf("paged_attention: %s\n", worst < 1e-5 ? "right" : "wrong");
  }
  std::vector<float> a = numbers(128), b(128);
  cuda_on_cpu_clear();
  shift(watched("a", a, 0), watched("out", b, 2), 128, nullptr);
  cuda_on_cpu_finish(), cuda_on_cpu_release(0);
  std::string report = cuda_on_cpu_report();
  printf("shift: %s\n",
         report.empty() ? "no report" : report.substr(0, report.find('\n')).c_str());
}
