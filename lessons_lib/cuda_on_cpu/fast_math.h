// CUDA's own functions of real numbers. A GPU's quick versions are less exact than these. Many
// are macros, because the C library declares some of these names too.
#pragma once
#include "language.h"

#define __expf(x) expf(x)
#define __exp2f(x) exp2f(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __tanhf(x) tanhf(x)
#define __sincosf(x, sine, cosine) sincosf(x, sine, cosine)
#define __powf(x, y) powf(x, y)
#define rsqrtf(x) (1.0f / sqrtf(x))
#define rsqrt(x) (1 / sqrt(x))
#define rcbrtf(x) (1.0f / cbrtf(x))
#define exp10f(x) powf(10.0f, x)
#define exp10(x) pow(10.0, x)
#define sinpif(x) float(sin(3.14159265358979323846 * (x)))
#define cospif(x) float(cos(3.14159265358979323846 * (x)))
#define normcdff(x) (0.5f * erfcf(-(x) * 0.70710678118654752440f))

inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
inline float rnorm3df(float a, float b, float c) { return rsqrtf(a * a + b * b + c * c); }
#if defined(__APPLE__)
inline void sincosf(float x, float* sine, float* cosine) {
  *sine = sinf(x), *cosine = cosf(x);
}
inline void sincos(double x, double* sine, double* cosine) {
  *sine = sin(x), *cosine = cos(x);
}
#endif
