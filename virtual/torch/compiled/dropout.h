// Dropout in its three forms, as CUDA's kernels draw it: of a tensor, in attention, and in the randomized leaky ReLU.
#pragma once
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "random.h"

namespace xdevice::random {

// ---- dropout ----

// How many neighbours a thread reads at once, and draws for: as many as the memory's alignment and the number allow.
inline int64_t neighbours(const Tensor& x) {
  if (!x.is_non_overlapping_and_dense()) return 1;
  const auto address = reinterpret_cast<uintptr_t>(x.const_data_ptr());
  const int64_t bytes = x.element_size();
  int64_t count = std::min<int64_t>(8, 16 / bytes);
  while (count > 1 && (address % (count * bytes) || x.numel() % count)) count /= 2;
  return count;
}

// Calls `store(i, number)` with the number that CUDA's kernel draws for the i-th element.
template <class F>
void draw_for_neighbours(int64_t n, int64_t count, const Start& begin, F store) {
  if (count == 1)
    return draw(n, begin, Uniform(), [&](int64_t element, const float* numbers, int64_t length) {
      for (int64_t k = 0; k < length; ++k) store(element + k, numbers[k]);
    });
  const int64_t threads = threads_for(n), draws = (count + 3) / 4;  // of four words, by each thread at a turn
  Words words;
  alignas(64) float numbers[4][WIDTH];
  for (int64_t first = 0, turn = 0; first < n; first += threads * count, ++turn)
    for (int64_t thread = 0; thread < threads && first + thread * count < n; thread += WIDTH)
      for (int64_t part = 0; part < draws; ++part) {
        begin.draw(turn * draws + part, thread, words);
        const int64_t each = std::min<int64_t>(count, 4);
        for (int64_t i = 0; i < each; ++i) philox::fill_uniform(words.of[i], numbers[i]);
        for (int64_t k = 0; k < WIDTH; ++k) {
          const int64_t element = first + (thread + k) * count + part * 4;
          if (element >= n) break;
          for (int64_t i = 0; i < each; ++i) store(element + i, numbers[i][k]);
        }
      }
}

// The generator of dropout, if that is not the GPU's: within recurrent layers.
inline thread_local std::optional<Generator> dropout_generator;

inline std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (!train.value_or(true)) return {x.clone(), at::ones_like(x, kBool)};
  if (p == 1) return {at::zeros_like(x), at::zeros_like(x, kBool)};
  const int64_t n = x.numel();
  Tensor mask = at::empty_like(x, kBool);
  if (!n) return {x.clone(), mask};
  Tensor result = at::empty_like(x);
  Start begin = start(dropout_generator, x.device(), increment_for(n, 4));
  const int64_t count = neighbours(x);
  // neighbours are those in memory; single elements are counted in the order of the indices
  const bool in_place = count > 1 || (x.is_contiguous() && result.is_contiguous());
  Tensor from = in_place ? x : x.contiguous(), to = in_place ? result : at::empty_like(from), kept = in_place ? mask : at::empty_like(from, kBool);
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, x.scalar_type(), "fused_dropout", [&] {
    using Math = at::opmath_type<scalar_t>;
    const Math keep = Math(1. - p), factor = 1.0 / keep;
    const auto* source = from.const_data_ptr<scalar_t>();
    auto* target = to.mutable_data_ptr<scalar_t>();
    auto* flags = kept.mutable_data_ptr<bool>();
    draw_for_neighbours(n, count, begin, [=](int64_t i, float number) {
      flags[i] = number < keep;
      target[i] = static_cast<scalar_t>(Math(source[i]) * Math(flags[i]) * factor);
    });
  });
  if (!in_place) result.copy_(to), mask.copy_(kept);
  return {result, mask};
}

// ---- dropout in the memory-efficient attention: one thread's words, in the order of the weights ----

// Which weights are kept, of each row of queries and each column of keys.
inline Tensor kept_weights(const Tensor& q, const Tensor& k, double p) {
  Tensor kept = at::empty({q.size(0), q.size(1), q.size(2), k.size(2)}, q.options().dtype(kBool));
  const int64_t n = kept.numel();
  if (!n) return kept;
  const Start begin = start(std::nullopt, q.device(), n);
  auto* flags = kept.mutable_data_ptr<bool>();
  for (int64_t first = 0; first < n; first += WORDS) {
    const auto words = philox::draw_one(begin.seed, (begin.offset + first) / WORDS, 0);
    for (int64_t i = first; i < std::min<int64_t>(n, first + WORDS); ++i)
      flags[i] = philox::uniform(words[i - first]) > float(p);
  }
  return kept;
}

// ---- the randomized leaky ReLU ----

inline Tensor& rrelu_out(const Tensor& x, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
                         MaybeGenerator generator, Tensor& out) {
  const double low = lower.toDouble(), range = upper.toDouble() - low;
  out.resize_(x.sizes());
  const int64_t n = x.numel();
  if (!n) return out;
  if (!training) return out.copy_(at::leaky_relu(x, low + range / 2));
  Tensor from = x.contiguous(), slopes = noise.contiguous(), to = out.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, x.scalar_type(), "rrelu_with_noise_out_cuda", [&] {
    using Source = UniformFor<scalar_t>;
    const auto* source = from.const_data_ptr<scalar_t>();
    auto *target = to.mutable_data_ptr<scalar_t>(), *slope = slopes.mutable_data_ptr<scalar_t>();
    draw(n, start(generator, x.device(), increment_for(n, Source::NUMBERS)), Source(),
         [=](int64_t element, const auto* numbers, int64_t count) {
           for (int64_t k = 0, i = element; k < count; ++k, ++i) {
             const auto drawn = static_cast<scalar_t>(static_cast<scalar_t>(numbers[k]) * range + low);
             slope[i] = source[i] <= scalar_t(0) ? drawn : scalar_t(1);
             target[i] = source[i] <= scalar_t(0) ? source[i] * drawn : source[i];
           }
         });
  });
  if (!slopes.is_same(noise)) noise.copy_(slopes);
  if (!to.is_same(out)) out.copy_(to);
  return out;
}

inline Tensor rrelu(const Tensor& x, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
                    MaybeGenerator generator) {
  Tensor out = at::empty_like(x, MemoryFormat::Contiguous);
  return rrelu_out(x, noise, lower, upper, training, generator, out);
}

inline Tensor& rrelu_(Tensor& x, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
                      MaybeGenerator generator) {
  return rrelu_out(x, noise, lower, upper, training, generator, x);
}

}  // namespace xdevice::random
