// Small programs as a first tutorial of CUDA has them. Each writes what it finds to `out`,
// which is a GPU's memory; `// gives` says what that is on a GPU (test_cuda_tutorial.py).
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#define CHECK(call)                                                                 \
  do {                                                                              \
    cudaError_t error = (call);                                                     \
    if (error != cudaSuccess) {                                                     \
      fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
      return error;                                                                 \
    }                                                                               \
  } while (0)

__global__ void add(int n, const float* a, const float* b, float* c) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

// gives 0 3 6 9
extern "C" int add_vectors(float* out, cudaStream_t stream) {
  const int n = 1000;
  size_t bytes = n * sizeof(float);
  float *a = (float*)malloc(bytes), *b = (float*)malloc(bytes), *c = (float*)malloc(bytes);
  for (int i = 0; i < n; ++i) a[i] = i, b[i] = 2 * i;
  float *d_a, *d_b, *d_c;
  CHECK(cudaMalloc((void**)&d_a, bytes));
  CHECK(cudaMalloc((void**)&d_b, bytes));
  CHECK(cudaMalloc((void**)&d_c, bytes));
  CHECK(cudaMemcpy(d_a, a, bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(d_b, b, bytes, cudaMemcpyHostToDevice));
  add<<<(n + 255) / 256, 256>>>(n, d_a, d_b, d_c);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(c, d_c, bytes, cudaMemcpyDeviceToHost));
  cudaFree(d_a), cudaFree(d_b), cudaFree(d_c);
  CHECK(cudaMemcpyAsync(out, c, 4 * sizeof(float), cudaMemcpyHostToDevice, stream));
  CHECK(cudaStreamSynchronize(stream));
  free(a), free(b), free(c);
  return cudaSuccess;
}

// gives 3 3 3 0
extern "C" int add_managed(float* out, cudaStream_t stream) {
  int n = 1 << 10;
  float *x, *y;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&y, n * sizeof(float));
  for (int i = 0; i < n; i++) {
    x[i] = 1.0f;
    y[i] = 2.0f;
  }
  add<<<4, 256>>>(n, x, y, y);
  cudaDeviceSynchronize();
  float largest = 0.0f;
  for (int i = 0; i < n; i++) largest = fmaxf(largest, fabsf(y[i] - 3.0f));
  float found[] = {y[0], y[1], y[n - 1], largest};
  cudaMemcpyAsync(out, found, sizeof found, cudaMemcpyHostToDevice, stream);
  cudaFree(x);
  cudaFree(y);
  return cudaStreamSynchronize(stream);
}

// A grid-stride loop, with pinned memory, streams and events.
__global__ void square_all(float* x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    x[i] = x[i] * x[i];
}
// gives 0 1 9801 1
extern "C" int streams_and_events(float* out, cudaStream_t stream) {
  const int n = 100, half = n / 2;
  float *h, *d, milliseconds = -1;
  cudaStream_t streams[2];
  cudaEvent_t start, stop;
  CHECK(cudaMallocHost(&h, n * sizeof(float)));
  CHECK(cudaMalloc(&d, n * sizeof(float)));
  for (int i = 0; i < n; ++i) h[i] = i;
  for (cudaStream_t& one : streams) CHECK(cudaStreamCreate(&one));
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  CHECK(cudaEventRecord(start, 0));
  for (int i = 0; i < 2; ++i) {
    float *from = h + i * half, *to = d + i * half;
    CHECK(cudaMemcpyAsync(to, from, half * sizeof(float), cudaMemcpyHostToDevice, streams[i]));
    square_all<<<2, 16, 0, streams[i]>>>(to, half);
    CHECK(cudaMemcpyAsync(from, to, half * sizeof(float), cudaMemcpyDeviceToHost, streams[i]));
  }
  for (cudaStream_t one : streams) CHECK(cudaStreamSynchronize(one));
  CHECK(cudaEventRecord(stop));
  CHECK(cudaEventSynchronize(stop));
  CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
  float found[] = {h[0], h[1], h[n - 1], milliseconds >= 0 ? 1.0f : 0.0f};
  CHECK(cudaMemcpyAsync(out, found, sizeof found, cudaMemcpyHostToDevice, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (cudaStream_t one : streams) cudaStreamDestroy(one);
  cudaEventDestroy(start), cudaEventDestroy(stop);
  cudaFreeHost(h), cudaFree(d);
  return cudaGetLastError();
}

__constant__ float coefficients[3];
__constant__ int offset = 10;
__global__ void polynomial(float* y) {
  float x = threadIdx.x;
  y[threadIdx.x] = coefficients[0] + x * (coefficients[1] + x * coefficients[2]) + offset;
}
// gives 11 16 27 44
extern "C" int constant_memory(float* out, cudaStream_t stream) {
  float host[3] = {1, 2, 3};
  CHECK(cudaMemcpyToSymbol(coefficients, host, sizeof(host)));
  polynomial<<<1, 4, 0, stream>>>(out);
  float back[3];
  CHECK(cudaMemcpyFromSymbol(back, coefficients, sizeof(back)));
  return back[2] == 3 ? cudaGetLastError() : cudaErrorUnknown;
}

__device__ int counter;
__managed__ int total = 5;
__global__ void count_even(const int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] % 2 == 0) atomicAdd(&counter, 1), atomicAdd(&total, x[i]);
}
// gives 50 2455
extern "C" int device_variable(float* out, cudaStream_t stream) {
  int zero = 0, count, *d;
  std::vector<int> numbers(100);
  for (int i = 0; i < 100; ++i) numbers[i] = i;
  total = 5;
  cudaMalloc(&d, numbers.size() * sizeof(int));
  cudaMemcpy(d, numbers.data(), numbers.size() * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemcpyToSymbol(counter, &zero, sizeof(int));
  count_even<<<4, 32>>>(d, 100);
  cudaMemcpyFromSymbol(&count, counter, sizeof(int));
  cudaDeviceSynchronize();
  float found[] = {(float)count, (float)total};
  cudaMemcpyAsync(out, found, sizeof found, cudaMemcpyHostToDevice, stream);
  cudaFree(d);
  return cudaStreamSynchronize(stream);
}

#define TILE 4
__global__ void multiply(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int step = 0; step < n / TILE; ++step) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + step * TILE + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(step * TILE + threadIdx.y) * n + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
// gives 28 28 28 28 92 92 92 92
extern "C" int multiply_matrices(float* out, cudaStream_t stream) {
  const int n = 8;
  float a[n * n], ones[n * n], *d_a, *d_b, *d_c;
  for (int i = 0; i < n * n; ++i) a[i] = i, ones[i] = 1;
  cudaMalloc(&d_a, sizeof a), cudaMalloc(&d_b, sizeof ones), cudaMalloc(&d_c, sizeof a);
  cudaMemcpy(d_a, a, sizeof a, cudaMemcpyHostToDevice);
  cudaMemcpy(d_b, ones, sizeof ones, cudaMemcpyHostToDevice);
  dim3 block(TILE, TILE), grid(n / TILE, n / TILE);
  multiply<<<grid, block, 0, stream>>>(d_a, d_b, d_c, n);
  cudaMemcpyAsync(out, d_c + 4, 8 * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  cudaStreamSynchronize(stream);
  cudaFree(d_a), cudaFree(d_b), cudaFree(d_c);
  return cudaGetLastError();
}

__global__ void sum_block(const int* in, int* sums) {
  extern __shared__ int part[];
  unsigned thread = threadIdx.x, i = blockIdx.x * blockDim.x + thread;
  part[thread] = in[i];
  __syncthreads();
  for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
    if (thread < s) part[thread] += part[thread + s];
    __syncthreads();
  }
  if (thread == 0) sums[blockIdx.x] = part[0];
}
// gives 2016 6112
extern "C" int reduce_shared(float* out, cudaStream_t stream) {
  int host[128], sums[2], *in, *d_sums;
  for (int i = 0; i < 128; ++i) host[i] = i;
  cudaMalloc(&in, sizeof host), cudaMalloc(&d_sums, sizeof sums);
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  sum_block<<<2, 64, 64 * sizeof(int)>>>(in, d_sums);
  cudaMemcpy(sums, d_sums, sizeof sums, cudaMemcpyDeviceToHost);
  float found[] = {(float)sums[0], (float)sums[1]};
  cudaMemcpyAsync(out, found, sizeof found, cudaMemcpyHostToDevice, stream);
  cudaFree(in), cudaFree(d_sums);
  return cudaStreamSynchronize(stream);
}

template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK)
    scale(T* __restrict__ y, const T* __restrict__ x, T by) {
  auto scaled = [=](T value) { return value * by; };
  y[threadIdx.x] = scaled(__ldg(&x[threadIdx.x]));
}
// gives 0 2.5 5 7.5
extern "C" int templates(float* out, cudaStream_t stream) {
  float host[4] = {0, 1, 2, 3}, *x;
  cudaMalloc(&x, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  scale<float, 4><<<1, 4, 0, stream>>>(out, x, 2.5f);
  cudaStreamSynchronize(stream);
  cudaFree(x);
  return cudaGetLastError();
}

namespace cg = cooperative_groups;
__global__ void sum_tiles(float* out) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<16>(block);
  float sum = block.thread_rank();
  for (int i = tile.size() / 2; i > 0; i /= 2) sum += tile.shfl_down(sum, i);
  if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = sum;
  block.sync();
}
// gives 120 376 632 888
extern "C" int groups(float* out, cudaStream_t stream) {
  sum_tiles<<<1, 64, 0, stream>>>(out);
  return cudaGetLastError();
}

__device__ __noinline__ int twice(int x) { return 2 * x; }
__global__ void greet(float* out, long long* ticks) {
  assert(blockDim.x == 3);
  long long start = clock64();
  clock_t begin = clock();
  printf("Hello from thread %d\n", threadIdx.x);
  out[threadIdx.x] = twice(threadIdx.x);
  ticks[threadIdx.x] = clock64() - start + (clock() - begin) * 0;
}
// gives 0 2 4 1
extern "C" int hello(float* out, cudaStream_t stream) {
  long long ticks[3], *d;
  cudaMalloc(&d, sizeof ticks);
  greet<<<1, 3, 0, stream>>>(out, d);
  cudaStreamSynchronize(stream);
  cudaMemcpy(ticks, d, sizeof ticks, cudaMemcpyDeviceToHost);
  float on = ticks[0] >= 0 && ticks[2] >= 0;
  cudaMemcpy(out + 3, &on, sizeof on, cudaMemcpyHostToDevice);
  cudaFree(d);
  return cudaGetLastError();
}

// gives 1 1024 32 1 2
extern "C" int devices(float* out, cudaStream_t stream) {
  int count, device, most, version;
  cudaDeviceProp properties;
  size_t free_bytes, total;
  CHECK(cudaGetDeviceCount(&count));
  CHECK(cudaGetDevice(&device));
  CHECK(cudaSetDevice(device));
  CHECK(cudaGetDeviceProperties(&properties, device));
  CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxThreadsPerBlock, device));
  CHECK(cudaMemGetInfo(&free_bytes, &total));
  CHECK(cudaRuntimeGetVersion(&version));
  void* nothing = nullptr;
  cudaError_t refused = cudaMalloc(&nothing, (size_t)1 << 60);
  float words = strcmp(cudaGetErrorName(refused), "cudaErrorMemoryAllocation") == 0 &&
                strcmp(cudaGetErrorString(refused), "out of memory") == 0;
  cudaGetLastError();
  float found[] = {(float)(count >= 1 && free_bytes <= total), (float)most,
                   (float)properties.warpSize, words, (float)refused};
  CHECK(cudaMemcpyAsync(out, found, sizeof found, cudaMemcpyHostToDevice, stream));
  return cudaStreamSynchronize(stream);
}

struct Particle {
  char kind;
  double x;
};
__global__ void move(Particle* all, float4* to) {
  Particle mine = all[threadIdx.x];
  mine.x += 0.5;
  all[threadIdx.x] = mine;
  to[threadIdx.x] = make_float4(mine.kind, mine.x, CUDART_PI_F, 0.0f);
}
// gives 1 2.5 3.14159274 0 2 3.5 3.14159274 0
extern "C" int structs(float* out, cudaStream_t stream) {
  Particle host[2] = {{1, 2}, {2, 3}}, *d;
  cudaMalloc(&d, sizeof host);
  cudaMemset(d, 0, sizeof host);
  cudaMemcpy(d, host, sizeof host, cudaMemcpyHostToDevice);
  move<<<1, 2, 0, stream>>>(d, (float4*)out);
  cudaStreamSynchronize(stream);
  cudaFree(d);
  return cudaGetLastError();
}

__global__ void histogram(const unsigned char* text, int n, unsigned* bins) {
  __shared__ unsigned mine[4];
  if (threadIdx.x < 4) mine[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(&mine[text[i] - 'a'], 1u);
  __syncthreads();
  if (threadIdx.x < 4) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}
__global__ void to_float(const unsigned* bins, float* out) {
  out[threadIdx.x] = bins[threadIdx.x];
}
// gives 5 2 1 1
extern "C" int histograms(float* out, cudaStream_t stream) {
  unsigned char* text;
  unsigned* bins;
  cudaMallocAsync(&text, 9, stream);
  cudaMallocAsync(&bins, 4 * sizeof(unsigned), stream);
  cudaMemcpyAsync(text, "abacadaba", 9, cudaMemcpyHostToDevice, stream);
  cudaMemsetAsync(bins, 0, 4 * sizeof(unsigned), stream);
  histogram<<<2, 32, 0, stream>>>(text, 9, bins);
  histogram<<<dim3(1), dim3(32, 1, 1), 0, stream>>>(text, 0, bins);
  to_float<<<1, 4, 0, stream>>>(bins, out);
  cudaFreeAsync(text, stream);
  cudaFreeAsync(bins, stream);
  return cudaGetLastError();
}
