// Dropout in its three forms, as CUDA's kernels draw it: of a tensor, in attention, and in the
// randomized leaky ReLU.
#pragma once
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "random.h"
#include "without_values.h"

namespace xdevice::random {

// ---- dropout ----

// How many neighbours a thread reads at once, and draws for: as many as the memory's alignment and
// the number of elements allow.
inline int64_t neighbours(const Tensor& x) {
  if (!x.is_non_overlapping_and_dense()) return 1;
  constexpr int64_t BYTES_AT_ONCE = 16;
  const int64_t most = as_before_2_7 ? 4 : 8;
  const int64_t bytes = x.element_size();
  const auto address = reinterpret_cast<uintptr_t>(x.const_data_ptr());
  int64_t count = std::min(most, BYTES_AT_ONCE / bytes);
  while (count > 1 && (address % (count * bytes) || x.numel() % count)) count /= 2;
  return count;
}

// Calls `store(i, number)` with the number that CUDA's kernel draws for the i-th element.
template <class F>
void draw_for_neighbours(int64_t n, int64_t count, const Start& begin, F store) {
  if (count > 1) {
    philox::draw_for_neighbours(n, threads_for(n), count, begin, store);
    return;
  }
  draw(n, begin, philox::Uniform(), [&](int64_t element, const float* numbers, int64_t length) {
    for (int64_t k = 0; k < length; ++k) store(element + k, numbers[k]);
  });
}

// The generator of dropout, if that is not the GPU's: within recurrent layers.
inline thread_local std::optional<Generator> dropout_generator;

// Writes the result and the mask, which have the order of the elements in the memory of x.
inline void drop(const Tensor& x, double p, int64_t count, const Start& begin, Tensor& result,
                 Tensor& mask) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, x.scalar_type(), "fused_dropout", [&] {
    using Math = at::opmath_type<scalar_t>;
    const Math keep = Math(1. - p);
    const Math factor = 1.0 / keep;
    const auto* source = x.const_data_ptr<scalar_t>();
    auto* target = result.mutable_data_ptr<scalar_t>();
    auto* kept = mask.mutable_data_ptr<bool>();
    draw_for_neighbours(x.numel(), count, begin, [=](int64_t i, float number) {
      kept[i] = number < keep;
      target[i] = static_cast<scalar_t>(Math(source[i]) * Math(kept[i]) * factor);
    });
  });
}

inline std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (!train.value_or(true)) return {x.clone(), at::ones_like(x, kBool)};
  if (p == 1) return {at::zeros_like(x), at::zeros_like(x, kBool)};
  const int64_t n = x.numel();
  Tensor mask = at::empty_like(x, kBool);
  if (!n) return {x.clone(), mask};
  Tensor result = at::empty_like(x);
  const Start begin = start(dropout_generator, x.device(), increment_for(n, WORDS));
  const int64_t count = neighbours(x);
  // neighbours are those in memory; single elements are counted in the order of the indices
  const bool is_in_order = x.is_contiguous() && result.is_contiguous();
  if (!values::exist(x) || is_large(x.nbytes())) {
    values::set(result, false), values::set(mask, false);
    return {result, mask};
  }
  if (count > 1 || is_in_order) {
    drop(x, p, count, begin, result, mask);
    return {result, mask};
  }
  const Tensor ordered = x.contiguous();
  Tensor ordered_result = at::empty_like(ordered);
  Tensor ordered_mask = at::empty_like(ordered, kBool);
  drop(ordered, p, count, begin, ordered_result, ordered_mask);
  return {result.copy_(ordered_result), mask.copy_(ordered_mask)};
}

// ---- the randomized leaky ReLU ----

inline Tensor& rrelu_out(const Tensor& x, Tensor& noise, const Scalar& lower, const Scalar& upper,
                         bool training, MaybeGenerator generator, Tensor& out) {
  const double low = lower.toDouble();
  const double range = upper.toDouble() - low;
  out.resize_(x.sizes());
  const int64_t n = x.numel();
  if (!n) return out;
  if (!training) return out.copy_(at::leaky_relu(x, low + range / 2));
  const Tensor from = x.contiguous();
  Tensor slopes = noise.contiguous();
  Tensor to = out.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      kHalf, kBFloat16, x.scalar_type(), "rrelu_with_noise_out_cuda", [&] {
    using Source = UniformFor<scalar_t>;
    const auto* source = from.const_data_ptr<scalar_t>();
    auto* target = to.mutable_data_ptr<scalar_t>();
    auto* slope = slopes.mutable_data_ptr<scalar_t>();
    auto store = [=](int64_t i, scalar_t number) {
      const auto drawn = static_cast<scalar_t>(number * range + low);
      const bool is_leaky = source[i] <= scalar_t(0);
      slope[i] = is_leaky ? drawn : scalar_t(1);
      target[i] = is_leaky ? source[i] * drawn : source[i];
    };
    const Start begin = start(generator, x.device(), increment_for(n, Source::NUMBERS));
    draw(n, begin, Source(), [=](int64_t element, const auto* numbers, int64_t count) {
      for (int64_t k = 0; k < count; ++k) store(element + k, static_cast<scalar_t>(numbers[k]));
    });
  });
  if (!slopes.is_same(noise)) noise.copy_(slopes);
  if (!to.is_same(out)) out.copy_(to);
  return out;
}

inline Tensor rrelu(const Tensor& x, Tensor& noise, const Scalar& lower, const Scalar& upper,
                    bool training, MaybeGenerator generator) {
  Tensor out = at::empty_like(x, MemoryFormat::Contiguous);
  return rrelu_out(x, noise, lower, upper, training, generator, out);
}

inline Tensor& rrelu_(Tensor& x, Tensor& noise, const Scalar& lower, const Scalar& upper,
                      bool training, MaybeGenerator generator) {
  return rrelu_out(x, noise, lower, upper, training, generator, x);
}

}  // namespace xdevice::random
