// What CUDA's kernels draw beside the plain distributions: dropout, permutations, and samples of given probabilities.
#pragma once
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

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

// A key and the index of its number; the items are first in the order of their indices.
struct Item {
  uint64_t key;
  uint32_t index;
};

// The same in one word, where there is room: the index is below the key.
struct Packed {
  uint64_t word;
};

// Makes items of both kinds, and reads them.
struct Layout {
  int index_bits;
  void set(Item& item, uint64_t key, uint32_t index) const { item = {key, index}; }
  void set(Packed& item, uint64_t key, uint32_t index) const { item.word = key << index_bits | index; }
  uint64_t key(const Item& item) const { return item.key; }
  uint64_t key(const Packed& item) const { return item.word >> index_bits; }
  uint32_t index(const Item& item) const { return item.index; }
  uint32_t index(const Packed& item) const { return uint32_t(item.word & ((uint64_t(1) << index_bits) - 1)); }
};

// Sorts the items stably by these bits of their keys, the lowest digit first. `spare` has room for as many.
template <class T>
void sort_by_digits(T*& items, T*& spare, int64_t n, int from, int to, const Layout& layout) {
  constexpr int DIGITS = 3, BITS = 11;  // few enough buckets for the processor's caches; more bits than indices have
  std::array<std::array<uint32_t, 1 << BITS>, DIGITS> ends;
  const int digits = std::min(DIGITS, (to - from + BITS - 1) / BITS), bits = (to - from + digits - 1) / digits;
  const uint64_t mask = (uint64_t(1) << bits) - 1;
  for (int digit = 0; digit < digits; ++digit) std::fill_n(ends[digit].begin(), mask + 1, 0);
  for (int64_t i = 0; i < n; ++i) {
    uint64_t key = layout.key(items[i]) >> from;
    for (int digit = 0; digit < digits; ++digit, key >>= bits) ++ends[digit][key & mask];
  }
  for (int digit = 0; digit < digits; ++digit) {
    const int shift = from + digit * bits;
    for (uint32_t bucket = 0, begin = 0; bucket <= mask; ++bucket) begin += std::exchange(ends[digit][bucket], begin);
    for (int64_t i = 0; i < n; ++i) spare[ends[digit][layout.key(items[i]) >> shift & mask]++] = items[i];
    std::swap(items, spare);
  }
}

// Sorts the items stably by their keys of so many random bits: by the upper ones, as many as decide between almost all
// keys, and then by inserting each item before those with greater keys. Whether any keys are equal.
template <class T>
bool sort_by_keys(T*& items, T*& spare, int64_t n, int bits, const Layout& layout) {
  constexpr int64_t FEW = 32;  // that are inserted without being sorted before
  if (n > FEW) sort_by_digits(items, spare, n, std::max(0, bits - int(std::bit_width(uint64_t(n))) - 2), bits, layout);
  bool any_equal = false;
  uint64_t greatest = layout.key(items[0]);
  for (int64_t i = 1; i < n; ++i) {
    const uint64_t key = layout.key(items[i]);
    if (key > greatest) {
      greatest = key;
      continue;
    }
    const T item = items[i];
    int64_t place = i;
    for (; place > 0 && key < layout.key(items[place - 1]); --place) items[place] = items[place - 1];
    items[place] = item;
    any_equal |= place > 0 && key == layout.key(items[place - 1]);
  }
  return any_equal;
}

// Items with equal keys are still in the order of their indices: one thread shuffles each run of them.
template <class T>
void shuffle_equal(T* items, int64_t n, const Start& begin, const Layout& layout) {
  for (int64_t first = 0, end; first + 1 < n; first = end) {
    for (end = first + 1; end < n && layout.key(items[end]) == layout.key(items[first]);) ++end;
    std::array<uint32_t, 4> words;
    for (int64_t i = end - first - 1, drawn = 0; i > 0; --i, ++drawn) {
      if (drawn % 4 == 0) words = philox::draw_one(begin.seed, (begin.offset + drawn) / WORDS, first);
      std::swap(items[first + i], items[first + words[drawn % 4] % (i + 1)]);
    }
  }
}

// The key as an unsigned number of so many bits, from the number that is drawn. torch draws keys of 32 or 64 bits by
// random_(lowest, highest), which leaves the highest out.
template <class Key>
uint64_t key_of(uint64_t number, int bits) {
  constexpr uint64_t RANGE = std::numeric_limits<Key>::max();
  constexpr auto LOWEST = std::numeric_limits<std::make_signed_t<Key>>::min();
  const Key key = Key(number % RANGE + int64_t(LOWEST));
  if (bits == sizeof(Key) * 8) return key ^ Key(LOWEST);  // keys with all their bits are sorted as signed numbers
  return key & ((Key(1) << bits) - 1);
}

template <class Key, class T>
void permute(int64_t n, int bits, const MaybeGenerator& generator, Tensor& result) {
  const Layout layout{std::bit_width(uint64_t(n - 1))};
  std::unique_ptr<T[]> memory(new T[2 * n]);
  T *items = memory.get(), *spare = items + n;
  draw(n, start(generator, result.device(), increment_for(n, LongIntegers::NUMBERS)), LongIntegers(),
       [&](int64_t element, const uint64_t* numbers, int64_t count) {
         for (int64_t k = 0; k < count; ++k) layout.set(items[element + k], key_of<Key>(numbers[k], bits), uint32_t(element + k));
       });
  const bool any_equal = sort_by_keys(items, spare, n, bits, layout);
  const Start shuffling = start(generator, result.device(), n);
  if (any_equal) shuffle_equal(items, n, shuffling, layout);
  AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, result.scalar_type(), "randperm_out_cuda", [&] {
    auto* out = result.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<scalar_t>(layout.index(items[i]));
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
  const int key_bits = int(std::min(bits, 64.));
  if (key_bits <= 32) permute<uint32_t, Packed>(n, key_bits, generator, out);
  else if (key_bits + std::bit_width(uint64_t(n - 1)) <= 64) permute<uint64_t, Packed>(n, key_bits, generator, out);
  else permute<uint64_t, Item>(n, key_bits, generator, out);
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
