"""Lesson 06, exercises 6.1, 6.6 and 6.8: launchers as others write them, and what they forget to hand on."""

from right_answers.lesson_06 import ALWAYS_ASKS, BYTES, EARLY_RETURN, GRID_STRIDE, SMALL_BLOCKS, _add, _launcher
from right_answers.lesson_06_hunt import OTHER_KERNEL, OURS, edited

# 6.1

ONE_EACH = """
__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}"""


def _launched(body):
    return _add(ONE_EACH, body)


IN_TWO_STEPS = _launched("int threads = 256;\n  int blocks = n;\n  blocks = (blocks + threads - 1) / threads;\n"
                         "  add_kernel<<<blocks, threads, 0, stream>>>(a, b, out, n);")
COUNTED_UP = _launched("int blocks = 0;\n  while (blocks * 64 < n) blocks++;\n  add_kernel<<<blocks, 64, 0, stream>>>(a, b, out, n);")
NO_WIDER_THAN_THE_VECTOR = _launched("int threads = n < 512 ? n : 512;\n"
                                     "  add_kernel<<<(n + threads - 1) / threads, threads, 0, stream>>>(a, b, out, n);")
A_THREAD_A_BLOCK = _launched("add_kernel<<<n, 1, 0, stream>>>(a, b, out, n);")
HELPER_WITH_SHORT_NAMES = _add(ONE_EACH + """
static cudaError_t go(const float* a, const float* b, float* o, int n, int t, cudaStream_t s) {
  add_kernel<<<n / t + (n % t != 0), t, 0, s>>>(a, b, o, n);
  return cudaPeekAtLastError();
}""", "if (cudaError_t error = go(a, b, out, n, 128, stream)) return error;")
AT_MOST_SO_MANY_BLOCKS = edited(GRID_STRIDE, ("add_kernel<<<3, 64,", "int blocks = (n + 255) / 256;\n"
                                              "  add_kernel<<<blocks < 512 ? blocks : 512, 256,"))
IN_TWO_HALVES = _launched("int half = n / 2;\n  if (half) add_kernel<<<(half + 255) / 256, 256, 0, stream>>>(a, b, out, half);\n"
                          "  if (cudaError_t error = cudaGetLastError()) return error;\n  int rest = n - half;\n"
                          "  add_kernel<<<(rest + 255) / 256, 256, 0, stream>>>(a + half, b + half, out + half, rest);")

NO_STREAM = edited(EARLY_RETURN, (", 0, stream>>>", ">>>"))
NULL_STREAM = edited(IN_TWO_STEPS, (", 0, stream>>>", ", 0, nullptr>>>"))
ASKED_TOO_EARLY = edited(EARLY_RETURN, ("dim3 threads(256)", "int error = cudaGetLastError();\n  dim3 threads(256)"),
                         ("return cudaGetLastError()", "return error"))
WAITS_FOR_THE_END = edited(EARLY_RETURN, ("return cudaGetLastError()", "return cudaStreamSynchronize(stream)"))
ALWAYS_2048_BLOCKS = edited(EARLY_RETURN, ("blocks((n - 1) / 256 + 1)", "blocks(2048)"))
ONE_BLOCK_STRIDES = edited(GRID_STRIDE, ("<<<3, 64,", "<<<1, 1024,"))

# 6.6

P_AND_S = _launcher("""
template <typename T>
static int start(PagedAttentionParams p, size_t bytes, cudaStream_t s) {
  constexpr int all = 227 * 1024;
  if (bytes > all) return cudaErrorInvalidValue;
  if (int failed = cudaFuncSetAttribute(paged_attention_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return failed;
  paged_attention_kernel<T><<<dim3(p.num_seqs, p.num_q_heads), 64, bytes, s>>>(p);
  return cudaGetLastError();
}""", """
  size_t bytes = params.scores ? 0 : sizeof(float) * params.max_context_len;
  return params.dtype == 0 ? start<float>(params, bytes, stream) : params.dtype == 1 ? start<__half>(params, bytes, stream)
       : params.dtype == 2 ? start<__nv_bfloat16>(params, bytes, stream) : cudaErrorInvalidValue;""")
COMPARED_TO_A_LIMIT = edited(ALWAYS_ASKS, (BYTES, f"const size_t limit = 227 * 1024;\n  {BYTES}"),
                             ("  auto kernel", "  if (bytes > limit) return cudaErrorInvalidValue;\n  auto kernel"))
BY_A_POINTER = _launcher("""
using Kernel = void (*)(PagedAttentionParams);
static cudaError_t run(Kernel kernel, const PagedAttentionParams& params, cudaStream_t queue) {
  const unsigned bytes = params.scores == nullptr ? params.max_context_len * 4u : 0u;
  cudaError_t status = cudaFuncSetAttribute((const void*)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (status == cudaSuccess) {
    kernel<<<dim3(params.num_seqs, params.num_q_heads), 128, bytes, queue>>>(params);
    status = cudaGetLastError();
  }
  return status;
}""", """
  static const Kernel kernels[3] = {paged_attention_kernel<float>, paged_attention_kernel<__half>,
                                    paged_attention_kernel<__nv_bfloat16>};
  if (params.dtype < 0 || params.dtype > 2) return cudaErrorInvalidValue;
  return run(kernels[params.dtype], params, stream);""")
ALL_ALLOWED_BEFOREHAND = _launcher("""
static bool allow(int bytes) {
  auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
  return !cudaFuncSetAttribute(paged_attention_kernel<float>, most, bytes) &&
         !cudaFuncSetAttribute(paged_attention_kernel<__half>, most, bytes) &&
         !cudaFuncSetAttribute(paged_attention_kernel<__nv_bfloat16>, most, bytes);
}""", """
  static const bool allowed = allow(200 * 1024);
  if (!allowed) return cudaErrorInvalidValue;
  int bytes = params.scores ? 0 : params.max_context_len * sizeof(float);
  dim3 grid(params.num_seqs, params.num_q_heads);
  switch (params.dtype) {
    case 0: paged_attention_kernel<float><<<grid, 128, bytes, stream>>>(params); break;
    case 1: paged_attention_kernel<__half><<<grid, 128, bytes, stream>>>(params); break;
    case 2: paged_attention_kernel<__nv_bfloat16><<<grid, 128, bytes, stream>>>(params); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaGetLastError();""")
LAMBDA_FOR_A_TYPE = _launcher("", """
  auto start = [&](auto kernel) -> int {
    int bytes = params.scores ? 0 : params.max_context_len * (int)sizeof(float);
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (e) return e;
    kernel<<<dim3(params.num_seqs, params.num_q_heads), 128, bytes, stream>>>(params);
    e = cudaPeekAtLastError();
    return e;
  };
  if (params.dtype == 0) return start(paged_attention_kernel<float>);
  else if (params.dtype == 1) return start(paged_attention_kernel<__half>);
  else if (params.dtype == 2) return start(paged_attention_kernel<__nv_bfloat16>);
  return cudaErrorInvalidValue;""")

STREAM_DROPPED_ON_THE_WAY = edited(P_AND_S, ("64, bytes, s>>>", "64, bytes>>>"))
STREAM_OF_ITS_OWN = edited(ALWAYS_ASKS, ("  auto kernel", "  cudaStream_t mine = 0;\n  auto kernel"), ("bytes, stream>>>", "bytes, mine>>>"))
SYNCHRONISED_ONLY = edited(LAMBDA_FOR_A_TYPE, ("cudaPeekAtLastError()", "cudaStreamSynchronize(stream)"))
ERROR_OF_ONE_TYPE_LOST = edited(ALWAYS_ASKS, ("case 1: return launch<__half>(params, stream);", "case 1: launch<__half>(params, stream); return 0;"))
HALF_NOT_ALLOWED = edited(ALL_ALLOWED_BEFOREHAND, (
    "         !cudaFuncSetAttribute(paged_attention_kernel<__half>, most, bytes) &&\n", ""))
ALL_IF_MUCH = edited(SMALL_BLOCKS, ("cudaFuncAttributeMaxDynamicSharedMemorySize, floats * 4", "cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024"))

# 6.8

ROW = "  return ((block_id * p.block_size + token % p.block_size) * p.num_kv_heads + kv_head) * p.head_size;"
NARROW_ID = ("const int64_t block_id = p.block", "const int block_id = p.block")
WIDE_ROW = edited(OURS, NARROW_ID, (ROW, "  int64_t row = block_id;\n  row = row * p.block_size + token % p.block_size;\n"
                                         "  row = row * p.num_kv_heads + kv_head;\n  return row * p.head_size;"))
WIDE_SLOT = edited(OURS, NARROW_ID, (ROW, "  const int64_t size = p.block_size;\n  const int64_t slot = size * block_id + token % p.block_size;\n"
                                          "  return (slot * p.num_kv_heads + kv_head) * p.head_size;"))
WIDE_STEPS = edited(OURS, NARROW_ID, (ROW, "  const size_t of_token = size_t(p.num_kv_heads) * p.head_size, of_block = of_token * p.block_size;\n"
                                           "  return block_id * of_block + token % p.block_size * of_token + kv_head * p.head_size;"))
HELPER_S = edited(OURS, ('extern "C" int paged_attention(PagedAttentionParams p, cudaStream_t stream) {',
                         "static cudaError_t start(const PagedAttentionParams& p, cudaStream_t s) {"),
                  ("sizeof(float), stream>>>", "sizeof(float), s>>>")) + """
extern "C" int paged_attention(PagedAttentionParams params, cudaStream_t stream) { return start(params, stream); }
"""
ERROR_KEPT = edited(OTHER_KERNEL, ("  return (int)cudaGetLastError();", "  const auto e = cudaPeekAtLastError();\n  if (e != cudaSuccess) return e;\n  return 0;"))

RIGHT_ANSWERS = {
    "6.1": [IN_TWO_STEPS, COUNTED_UP, NO_WIDER_THAN_THE_VECTOR, A_THREAD_A_BLOCK, HELPER_WITH_SHORT_NAMES, AT_MOST_SO_MANY_BLOCKS,
            IN_TWO_HALVES],
    "6.6": [P_AND_S, COMPARED_TO_A_LIMIT, BY_A_POINTER, ALL_ALLOWED_BEFOREHAND, LAMBDA_FOR_A_TYPE],
    "6.8": [WIDE_ROW, WIDE_SLOT, WIDE_STEPS, HELPER_S, ERROR_KEPT],
}
WRONG_ANSWERS = {
    "6.1": {"stream-ignored": [NO_STREAM, NULL_STREAM], "error-not-returned": [ASKED_TOO_EARLY, WAITS_FOR_THE_END],
            "number-of-blocks-fixed": [ALWAYS_2048_BLOCKS], "one-block-in-a-loop": [ONE_BLOCK_STRIDES]},
    "6.6": {"stream-ignored": [STREAM_DROPPED_ON_THE_WAY, STREAM_OF_ITS_OWN],
            "error-not-returned": [SYNCHRONISED_ONLY, ERROR_OF_ONE_TYPE_LOST],
            "asked-for-another-kernel": [HALF_NOT_ALLOWED], "all-memory-asked-for": [ALL_IF_MUCH]},
    "6.8": {"stream-ignored": [edited(HELPER_S, ("sizeof(float), s>>>", "sizeof(float)>>>"))],
            "error-not-returned": [edited(HELPER_S, ("{ return start(params, stream); }", "{ start(params, stream); return 0; }")),
                                   edited(ERROR_KEPT, ("cudaPeekAtLastError()", "cudaDeviceSynchronize()"))],
            "offset-overflows": [edited(WIDE_ROW, ("int64_t row = block_id", "int row = block_id"))],
            "query-stride-made-up": [edited(OTHER_KERNEL, ("s * p.q_stride", "(int64_t)s * gridDim.y * p.head_size"))]},
}
