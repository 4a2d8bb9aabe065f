// Poisson's distribution, as cuRAND draws it. No C++ library is used.
#pragma once
#include "grid.h"

namespace xdevice::philox {
// The rates for which cuRAND has an approximation of its own.
constexpr double LEAST_OF_MEDIUM = 64;
constexpr double GREATEST_OF_MEDIUM = 4000;

// The number of factors until a product of uniform numbers is below exp(-rate) (Knuth).
inline double poisson_by_products(Sequence sequence, float rate) {
  float product = expf(rate);
  for (uint32_t number = 0;; ++number)
    if ((product *= sequence.uniform()) <= 1) return number;
}

inline double poisson_by_normal(Sequence sequence, double rate) {
  const Quad words{{sequence.word(), sequence.word(), sequence.word(), sequence.word()}};
  return floor(normal(words, 0) * sqrt(rate) + rate + 0.5);
}
}  // namespace xdevice::philox
