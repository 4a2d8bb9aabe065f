// Indices sorted by random keys, as GPUs permute them: stably, and each run of equal keys is then
// shuffled by one thread. No C++ library is used.
#pragma once
#include "grid.h"

namespace xdevice::philox {

// ---- what is sorted: keys with indices; the items are first in the order of their indices ----

struct Item {
  uint64_t key;
  uint32_t index;
};

// An item in one word, where there is room: the index is below the key.
struct Packed {
  uint64_t word;
};

// How many bits a number has, without leading zeros.
inline int bits_in(uint64_t number) {
  int bits = 0;
  for (; number; number >>= 1) ++bits;
  return bits;
}

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

// Which bits of a key a digit is, the lowest digit first.
struct Digits {
  int count;
  int bits;  // of each
  int first_bit;

  Digits(int from, int to) : first_bit(from) {
    const int all = to - from;
    count = int(least(MOST_DIGITS, divided_up(all, MOST_BITS_OF_DIGIT)));
    bits = int(divided_up(all, count));
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
  // first how many items a bucket has
  uint32_t places[MOST_DIGITS][1 << MOST_BITS_OF_DIGIT] = {};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = layout.key(items[i]);
    for (int digit = 0; digit < digits.count; ++digit) ++places[digit][digits.of(key, digit)];
  }
  for (int digit = 0; digit < digits.count; ++digit) {
    uint32_t* place = places[digit];  // then where its next item goes
    uint32_t begin = 0;
    for (uint64_t bucket = 0; bucket < digits.buckets(); ++bucket) {
      const uint32_t number = place[bucket];
      place[bucket] = begin;
      begin += number;
    }
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t bucket = digits.of(layout.key(items[i]), digit);
      spare[place[bucket]++] = items[i];
    }
    T* sorted = spare;
    spare = items;
    items = sorted;
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
    const int deciding_bits = bits_in(uint64_t(n)) + 2;
    const Digits digits(bits > deciding_bits ? bits - deciding_bits : 0, bits);
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
      const int64_t other = first + sequence.word() % choices;
      const T item = items[last];
      items[last] = items[other];
      items[other] = item;
    }
  }
}

// As few bits as make keys equal with a probability of a tenth at most; 64 at most.
inline int key_bits_for(int64_t n) {
  const double number = double(n);
  const double pairs = (6 * number * number + 1) / (12 * log(0.9));
  const double bits = ceil(log2(number - pairs));
  return bits < 64 ? int(bits) : 64;
}
}  // namespace xdevice::philox
