// What CUDA's kernels draw beside the plain distributions: dropout, permutations, and samples of given probabilities.
#pragma once
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "random.h"

namespace xdevice::random {

// ---- Bernoulli's trials with a probability for each element: a thread draws for four neighbours ----

template <class T, class P>
void fill_trials(T* out, const P* probabilities, int64_t n, const Start& begin) {
  Words words;
  for (int64_t first = 0; first < n; first += 4 * WIDTH) {
    begin.draw(0, first / 4, words);
    for (int64_t i = first; i < std::min(n, first + 4 * WIDTH); ++i)
      out[i] = static_cast<T>(philox::uniform(words.of[i % 4][(i - first) / 4]) <= probabilities[i]);
  }
}

inline void fill_trials(const TensorBase& self_, const TensorBase& p_, MaybeGenerator generator) {
  constexpr uint64_t INCREMENT = 10;
  Tensor self{self_}, p{p_};
  TORCH_CHECK(at::isFloatingType(p.scalar_type()), "expected probabilities tensor to have floating type, got ", p.scalar_type());
  Start begin = start(generator, self.device(), INCREMENT);
  p = p.to(self.device(), self.scalar_type() == kDouble ? kDouble : kFloat).expand(self.sizes()).contiguous();
  Tensor out = self.is_contiguous() ? self : at::empty_like(self, MemoryFormat::Contiguous);
  AT_DISPATCH_ALL_TYPES_AND3(kHalf, kBFloat16, kBool, self.scalar_type(), "bernoulli_tensor_cuda_self_", [&] {
    using P = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    fill_trials(out.mutable_data_ptr<scalar_t>(), p.const_data_ptr<P>(), self.numel(), begin);
  });
  if (!out.is_same(self)) self.copy_(out);
}

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

inline std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (!train.value_or(true)) return {x.clone(), at::ones_like(x, kBool)};
  if (p == 1) return {at::zeros_like(x), at::zeros_like(x, kBool)};
  const int64_t n = x.numel();
  Tensor mask = at::empty_like(x, kBool);
  if (!n) return {x.clone(), mask};
  Tensor result = at::empty_like(x);
  Start begin = start(std::nullopt, x.device(), increment_for(n, 4));
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

// ---- permutations: indices sorted by random keys of as few bits as make equal keys unlikely ----

template <class Key>
struct Item {
  Key key;
  uint32_t index;
};

// Sorts the items stably by these bits of their keys.
template <class Key>
void sort_by_bits(std::vector<Item<Key>>& items, int bits) {
  constexpr int DIGIT = 8;  // few enough buckets for the processor's caches
  std::vector<Item<Key>> sorted(items.size());
  for (int shift = 0; shift < bits; shift += DIGIT) {
    const Key mask = (Key(1) << std::min(DIGIT, bits - shift)) - 1;
    std::array<size_t, (1 << DIGIT) + 1> begins{};
    for (const auto& item : items) ++begins[size_t(item.key >> shift & mask) + 1];
    for (size_t digit = 1; digit < begins.size(); ++digit) begins[digit] += begins[digit - 1];
    for (const auto& item : items) sorted[begins[size_t(item.key >> shift & mask)]++] = item;
    items.swap(sorted);
  }
}

// Items with equal keys are still in the order of their indices: one thread shuffles each run of them.
template <class Key>
void shuffle_equal(std::vector<Item<Key>>& items, Key mask, const Start& begin) {
  for (size_t first = 0, end; first + 1 < items.size(); first = end) {
    for (end = first + 1; end < items.size() && !((items[end].key ^ items[first].key) & mask);) ++end;
    std::array<uint32_t, 4> words;
    for (size_t i = end - first - 1, drawn = 0; i > 0; --i, ++drawn) {
      if (drawn % 4 == 0) words = philox::draw_one(begin.seed, (begin.offset + drawn) / WORDS, first);
      std::swap(items[first + i].index, items[first + words[drawn % 4] % (i + 1)].index);
    }
  }
}

template <class Key>
void permute(int64_t n, int bits, const MaybeGenerator& generator, Tensor& result) {
  constexpr int WIDEST = sizeof(Key) * 8;
  using Signed = std::make_signed_t<Key>;
  // torch draws the keys by random_(lowest, highest), which leaves the highest out
  constexpr uint64_t RANGE = std::numeric_limits<Key>::max();
  constexpr auto LOWEST = std::numeric_limits<Signed>::min();
  const Key sign = bits == WIDEST ? Key(LOWEST) : 0;  // keys with all their bits are sorted as signed numbers
  std::vector<Item<Key>> items(n);
  draw(n, start(generator, result.device(), increment_for(n, LongIntegers::NUMBERS)), LongIntegers(),
       [&](int64_t element, const uint64_t* numbers, int64_t count) {
         for (int64_t k = 0; k < count; ++k)
           items[element + k] = {Key(Key(numbers[k] % RANGE + int64_t(LOWEST)) ^ sign), uint32_t(element + k)};
       });
  sort_by_bits(items, bits);
  shuffle_equal(items, bits == WIDEST ? ~Key(0) : (Key(1) << bits) - 1, start(generator, result.device(), n));
  AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, result.scalar_type(), "randperm_out_cuda", [&] {
    auto* out = result.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<scalar_t>(items[i].index);
  });
}

inline Tensor& permutation_out(int64_t n, MaybeGenerator generator, Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(n <= std::numeric_limits<int>::max(), "randperm of tensors larger than INT_MAX is not supported yet in pytorch");
  at::native::check_supported_max_int_with_precision(n, result);
  result.resize_({n});
  if (!n) return result;
  Tensor out = result.is_contiguous() ? result : at::empty_like(result, MemoryFormat::Contiguous);
  // for equal keys with a probability of a tenth at most
  const double number = double(n), bits = std::ceil(std::log2(number - (6 * number * number + 1) / (12 * std::log(0.9))));
  if (bits <= 32) permute<uint32_t>(n, int(bits), generator, out);
  else permute<uint64_t>(n, int(std::min(bits, 64.)), generator, out);
  if (!out.is_same(result)) result.copy_(out);
  return result;
}

// ---- samples with replacement: a thread for each sample of each row ----

template <class T>
int64_t find(const T* sums, const T* probabilities, int64_t categories, T number) {
  int64_t i = std::lower_bound(sums, sums + categories, number) - sums;
  i = std::min(i, categories - 1);
  while (i >= 1 && probabilities[i] == T(0)) --i;
  return i;
}

inline void sample_with_replacement(Tensor& result, const Tensor& self, int64_t samples, MaybeGenerator generator) {
  constexpr int64_t SAMPLES_OF_BLOCK = 128, MOST_ROWS_AT_ONCE = 65535;
  Tensor weights = (self.dim() == 1 ? self.unsqueeze(0) : self).contiguous();
  const int64_t rows = weights.size(0), categories = weights.size(1), at_once = std::min(rows, MOST_ROWS_AT_ONCE);
  const int64_t threads = (samples + SAMPLES_OF_BLOCK - 1) / SAMPLES_OF_BLOCK * SAMPLES_OF_BLOCK;  // for one row
  Tensor sum = weights.sum(-1, true);
  Tensor probabilities = weights.div(sum).contiguous(), sums = probabilities.cumsum(-1).contiguous();
  Start begin = start(generator, self.device(), ((rows - 1) / at_once + 1) * WORDS);
  result.resize_({rows, samples});
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, self.scalar_type(), "multinomial_kernel_cuda", [&] {
    auto* out = result.mutable_data_ptr<int64_t>();
    const auto *p = probabilities.const_data_ptr<scalar_t>(), *s = sums.const_data_ptr<scalar_t>();
    Words words;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t first = 0; first < samples; first += WIDTH) {
        begin.draw(row / at_once, row % at_once * threads + first, words);
        for (int64_t i = first; i < std::min(samples, first + WIDTH); ++i)
          out[row * samples + i] = find(s + row * categories, p + row * categories, categories,
                                        static_cast<scalar_t>(philox::uniform(words.of[0][i - first])));
      }
  });
  if (self.dim() == 1) result.resize_({samples});
}

inline void replace_sampling() {
  at::native::bernoulli_tensor_stub.set_cuda_dispatch_ptr(
      static_cast<void (*)(const TensorBase&, const TensorBase&, MaybeGenerator)>(&fill_trials));
  at::native::multinomial_with_replacement_stub.set_cuda_dispatch_ptr(&sample_with_replacement);
}
}  // namespace xdevice::random
