// Permutations, as CUDA's kernels draw them: indices sorted by random keys, of as few bits as make
// equal keys unlikely.
#pragma once
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty_like.h>

#include <bit>
#include <utility>

#include "random.h"

namespace xdevice::random {

// ---- what is sorted: keys with indices; the items are first in the order of their indices ----

struct Item {
  uint64_t key;
  uint32_t index;
};

// An item in one word, where there is room: the index is below the key.
struct Packed {
  uint64_t word;
};

// Makes items of both kinds, and reads them.
struct Layout {
  int index_bits;
  void set(Item& item, uint64_t key, uint32_t index) const { item = {key, index}; }
  void set(Packed& item, uint64_t key, uint32_t index) const {
    item.word = key << index_bits | index;
  }
  uint64_t key(const Item& item) const { return item.key; }
  uint64_t key(const Packed& item) const { return item.word >> index_bits; }
  uint32_t index(const Item& item) const { return item.index; }
  uint32_t index(const Packed& item) const {
    const uint64_t mask = (uint64_t(1) << index_bits) - 1;
    return uint32_t(item.word & mask);
  }
};

// ---- a radix sort by the upper bits of the keys, which decide between almost all of them ----

// Few enough buckets for the processor's caches, and more bits than indices have.
constexpr int MOST_DIGITS = 3;
constexpr int MOST_BITS_OF_DIGIT = 11;
using Buckets = std::array<uint32_t, 1 << MOST_BITS_OF_DIGIT>;

// Which bits of a key a digit is, the lowest digit first.
struct Digits {
  int count;
  int bits;  // of each
  int first_bit;

  Digits(int from, int to) : first_bit(from) {
    const int all = to - from;
    count = std::min<int>(MOST_DIGITS, philox::divided_up(all, MOST_BITS_OF_DIGIT));
    bits = philox::divided_up(all, count);
  }
  uint64_t buckets() const { return uint64_t(1) << bits; }
  uint64_t of(uint64_t key, int digit) const {
    return key >> (first_bit + digit * bits) & (buckets() - 1);
  }
};

// Sorts the items stably by these bits of their keys. `spare` has room for as many items; the
// pointers are exchanged with each digit.
template <class T>
void sort_by_digits(T*& items, T*& spare, int64_t n, const Digits& digits, const Layout& layout) {
  std::array<Buckets, MOST_DIGITS> places{};  // first how many items a bucket has
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = layout.key(items[i]);
    for (int digit = 0; digit < digits.count; ++digit) ++places[digit][digits.of(key, digit)];
  }
  for (int digit = 0; digit < digits.count; ++digit) {
    Buckets& place = places[digit];  // then where its next item goes
    uint32_t begin = 0;
    for (uint64_t bucket = 0; bucket < digits.buckets(); ++bucket) {
      begin += std::exchange(place[bucket], begin);
    }
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t bucket = digits.of(layout.key(items[i]), digit);
      spare[place[bucket]++] = items[i];
    }
    std::swap(items, spare);
  }
}

// ---- and an insertion sort, for few items, and for those whose upper bits are equal ----

// Inserts each item stably before those with greater keys. Whether any keys are equal.
template <class T>
bool sort_by_insertion(T* items, int64_t n, const Layout& layout) {
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
    for (; place > 0 && key < layout.key(items[place - 1]); --place) {
      items[place] = items[place - 1];
    }
    items[place] = item;
    any_equal |= place > 0 && key == layout.key(items[place - 1]);
  }
  return any_equal;
}

// Sorts the items stably by their keys of so many random bits. Whether any keys are equal.
template <class T>
bool sort_by_keys(T*& items, T*& spare, int64_t n, int bits, const Layout& layout) {
  constexpr int64_t FEW = 32;
  if (n > FEW) {
    const int deciding_bits = int(std::bit_width(uint64_t(n))) + 2;
    const Digits digits(std::max(0, bits - deciding_bits), bits);
    sort_by_digits(items, spare, n, digits, layout);
  }
  return sort_by_insertion(items, n, layout);
}

// Items with equal keys are still in the order of their indices: one thread shuffles each run.
template <class T>
void shuffle_equal(T* items, int64_t n, const Start& begin, const Layout& layout) {
  int64_t end;
  for (int64_t first = 0; first + 1 < n; first = end) {
    end = first + 1;
    while (end < n && layout.key(items[end]) == layout.key(items[first])) ++end;
    Sequence sequence{begin, uint64_t(first)};
    for (int64_t last = end - 1; last > first; --last) {
      const uint64_t choices = last - first + 1;
      std::swap(items[last], items[first + sequence.word() % choices]);
    }
  }
}

// ---- the keys ----

// The key as an unsigned number of so many bits, from the number that is drawn. torch draws keys
// of 32 or 64 bits by random_(lowest, highest), which leaves the highest out.
template <class Key>
uint64_t key_of(uint64_t number, int bits) {
  constexpr uint64_t RANGE = std::numeric_limits<Key>::max();
  constexpr auto LOWEST = std::numeric_limits<std::make_signed_t<Key>>::min();
  const Key key = Key(number % RANGE + int64_t(LOWEST));
  const bool has_all_bits = bits == sizeof(Key) * 8;
  if (has_all_bits) return key ^ Key(LOWEST);  // it is sorted as a signed number
  return key & ((Key(1) << bits) - 1);
}

template <class Key, class Source, class T>
void draw_items(int64_t n, int bits, const Start& begin, const Layout& layout, T* items) {
  draw(n, begin, Source(), [&](int64_t element, const auto* numbers, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t index = element + k;
      layout.set(items[index], key_of<Key>(numbers[k], bits), uint32_t(index));
    }
  });
}

template <class Key, class Source, class T>
void permute(int64_t n, int bits, const MaybeGenerator& generator, Tensor& result) {
  const Layout layout{int(std::bit_width(uint64_t(n - 1)))};
  std::unique_ptr<T[]> memory(new T[2 * n]);
  T* items = memory.get();
  T* spare = items + n;
  const Start drawing = start(generator, result.device(), increment_for(n, Source::NUMBERS));
  draw_items<Key, Source>(n, bits, drawing, layout, items);
  const bool any_equal = sort_by_keys(items, spare, n, bits, layout);
  const Start shuffling = start(generator, result.device(), n);
  if (any_equal) shuffle_equal(items, n, shuffling, layout);
  AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, result.scalar_type(), "randperm_out_cuda", [&] {
    auto* out = result.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<scalar_t>(layout.index(items[i]));
  });
}

// As few bits as make keys equal with a probability of a tenth at most.
inline int key_bits_for(int64_t n) {
  const double number = double(n);
  const double pairs = (6 * number * number + 1) / (12 * std::log(0.9));
  return int(std::min(std::ceil(std::log2(number - pairs)), 64.));
}

inline Tensor& permutation_out(int64_t n, MaybeGenerator generator, Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(n <= std::numeric_limits<int>::max(),
      "randperm of tensors larger than INT_MAX is not supported yet in pytorch");
  at::native::check_supported_max_int_with_precision(n, result);
  result.resize_({n});
  if (!n) return result;
  Tensor out = result;
  if (!result.is_contiguous()) out = at::empty_like(result, MemoryFormat::Contiguous);
  const int bits = key_bits_for(n);
  const int index_bits = std::bit_width(uint64_t(n - 1));
  if (bits <= 32 && as_before_2_7) permute<uint32_t, Integers, Packed>(n, bits, generator, out);
  else if (bits <= 32) permute<uint32_t, LongIntegers, Packed>(n, bits, generator, out);
  else if (bits + index_bits > 64) permute<uint64_t, LongIntegers, Item>(n, bits, generator, out);
  else permute<uint64_t, LongIntegers, Packed>(n, bits, generator, out);
  if (!out.is_same(result)) result.copy_(out);
  return result;
}

}  // namespace xdevice::random
