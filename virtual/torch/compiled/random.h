// Random numbers as CUDA's kernels draw them, for virtual GPUs that stand in: which thread of which grid draws a number
// for which element decides on its value.
//
// torch's own functions check the arguments, and call these kernels in the place of CUDA's.
#pragma once
#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/UnaryOps.h>

#include <utility>

#include "generators.h"
#include "philox.h"

namespace xdevice::random {
using philox::WIDTH;
using philox::Words;

// What decides on a grid: set from the model of the virtual GPUs.
inline int64_t multiprocessors = 0, threads_of_each = 0;
constexpr int64_t BLOCK = 256;
constexpr uint64_t WORDS = 4;  // that a thread draws at once

// The number of threads in the grid for n elements: one for each, as far as the multiprocessors hold them at once.
inline int64_t threads_for(int64_t n) {
  return BLOCK * std::min((n + BLOCK - 1) / BLOCK, multiprocessors * (threads_of_each / BLOCK));
}

// What a generator gives one kernel.
struct Start {
  uint64_t seed, offset;
  void draw(uint64_t turn, uint64_t thread, Words& words) const {
    philox::draw(seed, offset / WORDS + turn, thread, words);
  }
};

// The numbers that one thread draws one after another.
struct Sequence {
  Start begin;
  uint64_t thread;
  uint64_t drawn = 0;
  std::array<uint32_t, WORDS> words{};
  std::optional<float> spare;  // the second of two normal numbers

  uint32_t word() {
    const int next = drawn % WORDS;
    if (next == 0) words = philox::draw_one(begin.seed, (begin.offset + drawn) / WORDS, thread);
    ++drawn;
    return words[next];
  }
  float uniform() { return philox::uniform(word()); }
  float normal() {
    if (spare) return *std::exchange(spare, std::nullopt);
    const uint32_t x = word(), y = word();
    spare = philox::normal(x, y, 1);
    return philox::normal(x, y, 0);
  }
};

// Advances the generator by what a kernel draws in each thread.
inline Start start(const std::optional<Generator>& given, Device device, uint64_t increment) {
  check_usable();
  auto& generator = static_cast<PhiloxGenerator&>(virtual_generator(generator_for(given, device)));
  return {generator.current_seed(), generator.advance(increment)};
}

inline uint64_t increment_for(int64_t n, int numbers) { return ((n - 1) / (threads_for(n) * numbers) + 1) * WORDS; }

// ---- what a thread makes of the words that it draws at once: `NUMBERS` numbers, for elements that are a grid apart.
// `numbers` computes the i-th ones of consecutive threads, at least `count` of them ----

struct Uniform {
  using Number = float;
  static constexpr int NUMBERS = 4;
  float factor = 1, term = 0;
  void numbers(const Words& words, int i, int64_t, float* out) const {
    philox::fill_uniform(words.of[i], out);
    if (factor != 1 || term != 0) philox::scale(out, factor, term);
  }
};

struct UniformDouble {
  using Number = double;
  static constexpr int NUMBERS = 2;
  double factor = 1, term = 0;
  void numbers(const Words& words, int i, int64_t count, double* out) const {
    for (int64_t k = 0; k < count; ++k) out[k] = philox::uniform(words.of[2 * i][k], words.of[2 * i + 1][k]) * factor + term;
  }
};

struct Normal {
  using Number = float;
  static constexpr int NUMBERS = 4;
  float factor = 1, term = 0;
  void numbers(const Words& words, int i, int64_t, float* out) const {
    philox::fill_normal(words.of[i & ~1], words.of[i | 1], i & 1, out);
    if (factor != 1 || term != 0) philox::scale(out, factor, term);
  }
};

struct NormalDouble {
  using Number = double;
  static constexpr int NUMBERS = 2;
  double factor = 1, term = 0;
  void numbers(const Words& words, int i, int64_t count, double* out) const {
    for (int64_t k = 0; k < count; ++k)
      out[k] = philox::normal({words.of[0][k], words.of[1][k], words.of[2][k], words.of[3][k]}, i) * factor + term;
  }
};

struct Integers {
  using Number = uint32_t;
  static constexpr int NUMBERS = 4;
  void numbers(const Words& words, int i, int64_t, uint32_t* out) const { std::copy_n(words.of[i], WIDTH, out); }
};

struct LongIntegers {
  using Number = uint64_t;
  static constexpr int NUMBERS = 2;
  void numbers(const Words& words, int i, int64_t count, uint64_t* out) const {
    for (int64_t k = 0; k < count; ++k) out[k] = uint64_t(words.of[2 * i][k]) << 32 | words.of[2 * i + 1][k];
  }
};

template <class T>
using UniformFor = std::conditional_t<std::is_same_v<T, double>, UniformDouble, Uniform>;
template <class T>
using NormalFor = std::conditional_t<std::is_same_v<T, double>, NormalDouble, Normal>;

// Calls `store(element, numbers, count)` for each run of consecutive elements that consecutive threads draw.
template <class Source, class F>
void draw(int64_t n, const Start& start, const Source& source, F store) {
  const int64_t threads = threads_for(n);
  Words words;
  alignas(64) typename Source::Number numbers[WIDTH];
  for (int64_t first = 0, turn = 0; first < n; first += threads * Source::NUMBERS, ++turn)
    for (int64_t thread = 0; thread < threads && first + thread < n; thread += WIDTH) {
      start.draw(turn, thread, words);
      for (int i = 0; i < Source::NUMBERS; ++i) {
        int64_t element = first + i * threads + thread;
        if (element >= n) break;
        const auto count = std::min<int64_t>(WIDTH, n - element);
        source.numbers(words, i, count, numbers);
        store(element, numbers, count);
      }
    }
}

// Fills what the iterator goes through with `transform(number)`.
template <class T, class Source, class F>
void fill(TensorIteratorBase& iter, const std::optional<Generator>& generator, const Source& source, F transform) {
  const int64_t n = iter.numel();
  if (!n) return;
  Start begin = start(generator, iter.device(0), increment_for(n, Source::NUMBERS));
  if (!iter.can_use_32bit_indexing()) {  // for each part a kernel of its own draws anew
    for (auto& part : iter.with_32bit_indexing()) fill<T>(part, generator, source, transform);
    return;
  }
  auto fill_array = [&](T* out) {
    draw(n, begin, source, [&](int64_t element, const auto* numbers, int64_t count) {
      for (int64_t k = 0; k < count; ++k) out[element + k] = transform(numbers[k]);
    });
  };
  if (iter.is_contiguous()) return fill_array(static_cast<T*>(iter.data_ptr(0)));
  std::unique_ptr<T[]> values(new T[n]);
  fill_array(values.get());
  const T* next = values.get();
  iter.for_each([&](char** data, const int64_t* strides, int64_t count) {
    for (int64_t k = 0; k < count; ++k) *reinterpret_cast<T*>(data[0] + k * strides[0]) = *next++;
  }, n + 1);  // by one thread, in the order of the elements
}

// ---- the distributions ----

using MaybeGenerator = std::optional<Generator>;

inline void fill_uniform(TensorIteratorBase& iter, const double from_, const double to_, MaybeGenerator generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "uniform_kernel_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    const auto from = static_cast<scalar_t>(from_), to = static_cast<scalar_t>(to_);
    UniformFor<scalar_t> source{static_cast<Math>(to - from), static_cast<Math>(from)};
    fill<scalar_t>(iter, generator, source, [from, to](Math number) {
      const auto value = static_cast<scalar_t>(number);
      return value == to ? from : value;  // in [from, to), as the words make numbers in (0, 1]
    });
  });
}

inline void fill_normal(const TensorBase& self, const double mean, const double std, MaybeGenerator generator) {
  auto iter = TensorIterator::borrowing_nullary_op(self);
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "normal_kernel_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    NormalFor<scalar_t> source{static_cast<Math>(std), static_cast<Math>(mean)};
    fill<scalar_t>(iter, generator, source, [](Math number) { return static_cast<scalar_t>(number); });
  });
}

inline void fill_log_normal(TensorIteratorBase& iter, const double mean, const double std, MaybeGenerator generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "log_normal_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    NormalFor<scalar_t> source{static_cast<Math>(std), static_cast<Math>(mean)};
    fill<scalar_t>(iter, generator, source, [](Math number) { return static_cast<scalar_t>(std::exp(number)); });
  });
}

inline void fill_exponential(TensorIteratorBase& iter, const double rate, MaybeGenerator generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "exponential_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    constexpr Math HALF_STEP = std::numeric_limits<Math>::epsilon() / 2;
    fill<scalar_t>(iter, generator, UniformFor<scalar_t>(), [factor = Math(-1) / Math(rate)](Math number) {
      const Math log = number >= 1 - HALF_STEP ? -HALF_STEP : std::log(number);  // never 0
      return static_cast<scalar_t>(factor * log);
    });
  });
}

inline void fill_cauchy(TensorIteratorBase& iter, const double median_, const double sigma_, MaybeGenerator generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "cauchy_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    static constexpr Math STEP = std::is_same_v<Math, double> ? 0 : std::numeric_limits<Math>::epsilon();
    fill<scalar_t>(iter, generator, UniformFor<scalar_t>(), [median = Math(median_), sigma = Math(sigma_)](Math number) {
      const Math inside = std::clamp(number, STEP, 1 - STEP);  // where the tangent is finite
      return static_cast<scalar_t>(median + sigma * std::tan(c10::pi<Math> * (inside - Math(0.5))));
    });
  });
}

inline void fill_geometric(TensorIteratorBase& iter, const double p, MaybeGenerator generator) {
  AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "geometric_cuda", [&] {
    using Math = at::DiscreteDistributionType<scalar_t>::type;
    fill<scalar_t>(iter, generator, UniformFor<scalar_t>(), [failure = std::log1p(-Math(p))](Math number) {
      return static_cast<scalar_t>(std::ceil(std::log(number) / failure));
    });
  });
}

inline void fill_bernoulli(const TensorBase& self, const double p_, MaybeGenerator generator) {
  auto iter = TensorIterator::borrowing_nullary_op(self);
  AT_DISPATCH_ALL_TYPES_AND3(kHalf, kBFloat16, kBool, iter.dtype(), "bernoulli_scalar_cuda_", [&] {
    using Math = at::DiscreteDistributionType<scalar_t>::type;
    fill<scalar_t>(iter, generator, UniformFor<scalar_t>(), [p = Math(p_)](Math number) {
      return static_cast<scalar_t>(number < p);
    });
  });
}

// ---- integers ----

// From this range on, the remainder of 32 bits would make some numbers more likely than others by more than a twentieth.
constexpr uint64_t LARGE_RANGE = uint64_t(1) << 28;

inline void fill_from_to(TensorIteratorBase& iter, const uint64_t range, const int64_t base, MaybeGenerator generator) {
  AT_DISPATCH_V2(iter.dtype(), "random_from_to_kernel_cuda", AT_WRAP([&] {
    auto place = [base](uint64_t number) { return static_cast<scalar_t>(static_cast<int64_t>(number + base)); };
    if (range >= LARGE_RANGE)
      fill<scalar_t>(iter, generator, LongIntegers(), [=](uint64_t number) { return place(number % range); });
    else
      fill<scalar_t>(iter, generator, Integers(), [=, small = uint32_t(range)](uint32_t number) { return place(number % small); });
  }), AT_EXPAND(AT_ALL_TYPES), kBool, kHalf, kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

inline void fill_full_range(TensorIteratorBase& iter, MaybeGenerator generator) {
  AT_DISPATCH_ALL_TYPES_AND(kBFloat16, iter.dtype(), "random_full_64_bits_range_kernel_cuda", [&] {
    TORCH_CHECK((std::is_same_v<scalar_t, int64_t> || std::is_same_v<scalar_t, double> ||
        std::is_same_v<scalar_t, float> || std::is_same_v<scalar_t, at::BFloat16>),
        "random_full_64_bits_range_kernel_cuda handles only int64, double, float and bfloat16");
    fill<scalar_t>(iter, generator, LongIntegers(), [](uint64_t number) {
      return static_cast<scalar_t>(static_cast<int64_t>(number));
    });
  });
}

inline void fill_random(TensorIteratorBase& iter, MaybeGenerator generator) {
  AT_DISPATCH_ALL_TYPES_AND3(kHalf, kBFloat16, kBool, iter.dtype(), "random_kernel_cuda", [&] {
    constexpr bool LONG = std::is_same_v<scalar_t, double> || std::is_same_v<scalar_t, int64_t>;
    constexpr bool INTEGER = std::is_integral_v<scalar_t>;
    // all that the dtype holds of them: from 0 to the largest integer, or to the largest before which there are no gaps
    constexpr uint64_t RANGE = INTEGER ? uint64_t(std::numeric_limits<scalar_t>::max()) + 1
                                       : (uint64_t(1) << std::numeric_limits<scalar_t>::digits) + 1;
    using Source = std::conditional_t<LONG, LongIntegers, Integers>;
    fill<scalar_t>(iter, generator, Source(), [](auto number) {
      if constexpr (std::is_same_v<scalar_t, bool>) return bool(number & 1);
      else return static_cast<scalar_t>(number % RANGE);
    });
  });
}

// torch's own functions call these for tensors on CUDA.
inline void replace_kernels() {
  using namespace at::native;
  uniform_stub.set_cuda_dispatch_ptr(&fill_uniform);
  normal_stub.set_cuda_dispatch_ptr(&fill_normal);
  log_normal_stub.set_cuda_dispatch_ptr(&fill_log_normal);
  exponential_stub.set_cuda_dispatch_ptr(&fill_exponential);
  cauchy_stub.set_cuda_dispatch_ptr(&fill_cauchy);
  geometric_stub.set_cuda_dispatch_ptr(&fill_geometric);
  bernoulli_scalar_stub.set_cuda_dispatch_ptr(&fill_bernoulli);
  random_from_to_stub.set_cuda_dispatch_ptr(&fill_from_to);
  random_full_64_bits_range_stub.set_cuda_dispatch_ptr(&fill_full_range);
  random_stub.set_cuda_dispatch_ptr(&fill_random);
}
}  // namespace xdevice::random
