// Products of few rows: y = x Wᵀ. Each weight is read once, and that is what takes the time.
#pragma once
#include "numbers.h"

// Rows `first` to `first + num_outputs - 1` of W with all rows of x.
template <int num_rows, int num_outputs, typename T>
inline void products(float* y, const float* x, const T* weight, int64_t num_features,
                     int64_t size, int64_t first) {
  float sums[num_rows][num_outputs][num_lanes] = {};
  int64_t i = 0;
  for (; i + num_lanes <= size; i += num_lanes)
    for (int n = 0; n < num_outputs; ++n) {
      float wide[num_lanes];
      const T* from = weight + (first + n) * size + i;
      for (int lane = 0; lane < num_lanes; ++lane) wide[lane] = widen(from[lane]);
      for (int row = 0; row < num_rows; ++row)
        for (int lane = 0; lane < num_lanes; ++lane)
          sums[row][n][lane] += x[row * size + i + lane] * wide[lane];
    }
  for (int row = 0; row < num_rows; ++row)
    for (int n = 0; n < num_outputs; ++n) {
      float sum = dot(x + row * size + i, weight + (first + n) * size + i, size - i);
      for (float lane : sums[row][n]) sum += lane;
      y[row * num_features + first + n] = sum;
    }
}

template <int num_rows, typename T>
void few_rows(float* y, const float* x, const T* weight, int64_t num_features, int64_t size) {
  constexpr int together = 4;  // rows of W, so that a number of x is read once for all four
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < num_features; first += together)
    if (first + together <= num_features)
      products<num_rows, together>(y, x, weight, num_features, size, first);
    else
      for (int64_t n = first; n < num_features; ++n)
        products<num_rows, 1>(y, x, weight, num_features, size, n);
}
