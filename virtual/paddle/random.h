// Random numbers as PaddlePaddle's kernels draw them on GPUs, for drawing.py, which knows PaddlePaddle's tensors.
//
// A call fills an array of n numbers. It is given how many threads a GPU would start, and the seed and the offset of
// the GPU's generator. No C++ library is used.

#pragma once

// Another plug-in in this process may have these headers, too, compiled by other options.
#pragma GCC visibility push(hidden)
#include "poisson.h"
#include "sorting.h"
#pragma GCC visibility pop

namespace {

using xdevice::philox::Start;
using xdevice::philox::WIDTH;
using xdevice::philox::WORDS;

struct Drawn {
  int64_t n, threads;
  Start start;
};

// A thread's numbers are for elements that are a grid apart: each is transformed and stored.
template <class Source, class T, class Transform>
void Fill(const Drawn& drawn, T* to, Transform transform) {
  auto store = [&](int64_t first, const auto* numbers, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[first + i] = transform(numbers[i]);
  };
  xdevice::philox::draw(drawn.n, drawn.threads, drawn.start, Source(), store);
}

template <class Source>
void FillUniform(const Drawn& drawn, typename Source::Number* to, double low_, double high_) {
  using Number = typename Source::Number;
  const Number low = low_, range = Number(high_) - low;
  // from low to high, without high
  Fill<Source>(drawn, to, [=](Number number) { return number == 1 ? low : number * range + low; });
}

template <class Source>
void FillNormal(const Drawn& drawn, typename Source::Number* to, double mean_, double std_) {
  using Number = typename Source::Number;
  const Number mean = mean_, std = std_;
  Fill<Source>(drawn, to, [=](Number number) { return number * std + mean; });
}

template <class Source>
void FillExponential(const Drawn& drawn, typename Source::Number* to, double rate) {
  using Number = typename Source::Number;
  constexpr Number half_step = sizeof(Number) == sizeof(double) ? 0x1p-53 : 0x1p-24;
  const Number factor = -1 / rate;
  Fill<Source>(drawn, to, [=](Number number) {
    // in float32, as on GPUs, and never 0
    return factor * (number < 1 - half_step ? Number(xdevice::philox::logarithm(float(number))) : -half_step);
  });
}

template <class T>
void FillIntegers(const Drawn& drawn, T* to, int64_t low, uint64_t range) {
  // 0 stands for ranges that have room for all words
  const uint32_t divisor = range >> 32 ? 0 : uint32_t(range);
  Fill<xdevice::philox::Integers>(drawn, to, [=](uint32_t word) {
    return static_cast<T>(low + static_cast<int64_t>(divisor ? word % divisor : word));
  });
}

// A thread's numbers are for four neighbours.
template <class F>
void FillNeighbours(const Drawn& drawn, F store) {
  xdevice::philox::draw_for_neighbours(drawn.n, drawn.threads, WORDS, drawn.start, store);
}

template <class T>
void FillTrials(const Drawn& drawn, T* to, const T* probabilities) {
  FillNeighbours(drawn, [=](int64_t i, float number) { to[i] = number <= probabilities[i]; });
}

template <class T>
void FillNoise(const Drawn& drawn, T* to, float kept, float factor) {
  FillNeighbours(drawn, [=](int64_t i, float number) { to[i] = number < kept ? factor : 0; });
}

// One thread for each element. Elements of medium rates stay as they are; returns whether there are any.
template <class T>
bool FillPoisson(const Drawn& drawn, T* to, const T* rates) {
  using namespace xdevice::philox;
  bool any_medium = false;
  for (int64_t i = 0; i < drawn.n; ++i) {
    const Sequence sequence{drawn.start, static_cast<uint64_t>(i)};
    if (rates[i] < LEAST_OF_MEDIUM) to[i] = poisson_by_products(sequence, rates[i]);
    else if (rates[i] > GREATEST_OF_MEDIUM) to[i] = poisson_by_normal(sequence, rates[i]);
    else any_medium = true;
  }
  return any_medium;
}

// The keys of a permutation.
template <class F>
void DrawKeys(const Drawn& drawn, F store_key) {
  constexpr uint32_t largest_word = 0xFFFFFFFF;
  auto store = [&](int64_t first, const uint32_t* words, int64_t count) {
    for (int64_t i = 0; i < count; ++i) store_key(first + i, words[i] % largest_word);
  };
  xdevice::philox::draw(drawn.n, drawn.threads, drawn.start, xdevice::philox::Integers(), store);
}

// Memory for a call, which frees it.
template <class T>
struct Scratch {
  T* of;
  explicit Scratch(int64_t n) : of(static_cast<T*>(malloc(n * sizeof(T)))) {}
  ~Scratch() { free(of); }
};

// Sorts indices by so many bits of their keys, and shuffles neighbours with the same whole keys. Returns false if there
// is no memory for it.
template <class T>
bool FillPermutation(const Drawn& drawn, int64_t* to, int bits, const Start& shuffling) {
  using namespace xdevice::philox;
  const int64_t n = drawn.n;
  const Layout layout{bits_in(n - 1)};
  const uint32_t mask = bits < 32 ? (uint32_t{1} << bits) - 1 : ~uint32_t{0};
  Scratch<T> memory(2 * n);
  if (!memory.of) return false;
  T *items = memory.of, *spare = memory.of + n;
  DrawKeys(drawn, [&](int64_t i, uint32_t key) { layout.set(items[i], key & mask, i); });
  const bool any_equal = sort_by_keys(items, spare, n, bits, layout);
  for (int64_t i = 0; i < n; ++i) to[i] = layout.index(items[i]);
  if (!any_equal) return true;
  Scratch<uint32_t> keys(n);
  Scratch<Item> whole(n);
  if (!keys.of || !whole.of) return false;
  DrawKeys(drawn, [&](int64_t i, uint32_t key) { keys.of[i] = key; });
  for (int64_t i = 0; i < n; ++i) whole.of[i] = {keys.of[to[i]], static_cast<uint32_t>(to[i])};
  shuffle_equal(whole.of, n, shuffling, layout);
  for (int64_t i = 0; i < n; ++i) to[i] = whole.of[i].index;
  return true;
}

}  // namespace

#define XDEVICE_PLACE int64_t n, int64_t threads, uint64_t seed, uint64_t offset
#define XDEVICE_DRAWN Drawn{n, threads, {seed, offset}}

extern "C" {
#define XDEVICE_DRAW_FLOATS(SUFFIX, T, UNIFORM, NORMAL)                                                             \
  void DrawUniform##SUFFIX(XDEVICE_PLACE, T* to, double low, double high) {                                         \
    FillUniform<xdevice::philox::UNIFORM>(XDEVICE_DRAWN, to, low, high);                                            \
  }                                                                                                                 \
  void DrawNormal##SUFFIX(XDEVICE_PLACE, T* to, double mean, double std) {                                          \
    FillNormal<xdevice::philox::NORMAL>(XDEVICE_DRAWN, to, mean, std);                                              \
  }                                                                                                                 \
  void DrawExponential##SUFFIX(XDEVICE_PLACE, T* to, double rate) {                                                 \
    FillExponential<xdevice::philox::UNIFORM>(XDEVICE_DRAWN, to, rate);                                             \
  }                                                                                                                 \
  void DrawTrials##SUFFIX(XDEVICE_PLACE, T* to, const T* p) { FillTrials(XDEVICE_DRAWN, to, p); }                   \
  void DrawNoise##SUFFIX(XDEVICE_PLACE, T* to, float kept, float factor) {                                          \
    FillNoise(XDEVICE_DRAWN, to, kept, factor);                                                                     \
  }                                                                                                                 \
  bool DrawPoisson##SUFFIX(XDEVICE_PLACE, T* to, const T* rates) { return FillPoisson(XDEVICE_DRAWN, to, rates); }

XDEVICE_DRAW_FLOATS(32, float, Uniform, Normal)
XDEVICE_DRAW_FLOATS(64, double, UniformDouble, NormalDouble)
#undef XDEVICE_DRAW_FLOATS

void DrawIntegers32(XDEVICE_PLACE, int32_t* to, int64_t low, uint64_t range) {
  FillIntegers(XDEVICE_DRAWN, to, low, range);
}

void DrawIntegers64(XDEVICE_PLACE, int64_t* to, int64_t low, uint64_t range) {
  FillIntegers(XDEVICE_DRAWN, to, low, range);
}

// The first numbers of n threads, from this one on.
void DrawOfThreads(int64_t n, uint64_t thread, uint64_t seed, uint64_t offset, float* to) {
  xdevice::philox::Words words;
  for (int64_t first = 0; first < n; first += WIDTH) {
    Start{seed, offset}.draw(0, thread + first, words);
    for (int64_t i = 0; i < WIDTH && first + i < n; ++i) to[first + i] = xdevice::philox::uniform(words.of[0][i]);
  }
}

// The bits of the keys by which so many indices are sorted.
int BitsOfKeys(int64_t n) {
  const int bits = xdevice::philox::key_bits_for(n);
  return bits < 32 ? bits : 32;
}

// False if there is no memory for it.
bool DrawPermutation64(XDEVICE_PLACE, int64_t* to, uint64_t offset_of_shuffling) {
  using namespace xdevice::philox;
  const int bits = BitsOfKeys(n);
  const Start shuffling{seed, offset_of_shuffling};
  if (bits + bits_in(n - 1) > 64) return FillPermutation<Item>(XDEVICE_DRAWN, to, bits, shuffling);
  return FillPermutation<Packed>(XDEVICE_DRAWN, to, bits, shuffling);
}
}

#undef XDEVICE_DRAWN
#undef XDEVICE_PLACE
