// Products of few rows: y = x Wᵀ. Each weight is read once, and that is what takes the time.
#pragma once
#include "numbers.h"

// Rows `first` to `first + num_outputs - 1` of W with all rows of x.
template <int num_rows, int num_outputs, typename T>
inline void products(float* y, const float* x, const T* weight, int64_t num_features,
                     int64_t size, int64_t first) {
  Lanes sums[num_rows][num_outputs] = {};
  int64_t i = 0;
  for (; i + num_lanes <= size; i += num_lanes)
    for (int n = 0; n < num_outputs; ++n) {
      Lanes weights = read(weight + (first + n) * size + i);
      for (int row = 0; row < num_rows; ++row)
        sums[row][n] += read(x + row * size + i) * weights;
    }
  for (int row = 0; row < num_rows; ++row)
    for (int n = 0; n < num_outputs; ++n)
      y[row * num_features + first + n] =
          sum_of(sums[row][n]) +
          dot(x + row * size + i, weight + (first + n) * size + i, size - i);
}

template <int num_rows, typename T>
void few_rows(float* y, const float* x, const T* weight, int64_t num_features, int64_t size) {
  // Rows of W that share what is read of x; all sums have to fit into registers.
  constexpr int together = num_rows <= 2 ? 8 : 4;
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < num_features; first += together)
    if (first + together <= num_features)
      products<num_rows, together>(y, x, weight, num_features, size, first);
    else
      for (int64_t n = first; n < num_features; ++n)
        products<num_rows, 1>(y, x, weight, num_features, size, n);
}
