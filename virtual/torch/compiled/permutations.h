// Permutations, as CUDA's kernels draw them: indices sorted by random keys.
#pragma once
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty_like.h>

#include <utility>

#include "random.h"

namespace xdevice::random {

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
    Sequence sequence{begin, uint64_t(first)};
    for (int64_t i = end - first - 1; i > 0; --i) std::swap(items[first + i], items[first + sequence.word() % (i + 1)]);
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
  const Layout layout{int(std::bit_width(uint64_t(n - 1)))};
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

}  // namespace xdevice::random
