// Random numbers as CUDA's kernels draw them, for virtual GPUs that stand in: which thread of which
// grid draws a number for which element decides on its value.
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

#include <array>
#include <utility>

#include "generators.h"
#include "grid.h"

namespace xdevice::random {
using philox::Integers;
using philox::LongIntegers;
using philox::Start;
using philox::WIDTH;
using philox::WORDS;
using philox::Words;
using MaybeGenerator = std::optional<Generator>;

inline philox::Multiprocessors multiprocessors{};  // of the model of the virtual GPUs

// Whether numbers are drawn as PyTorch drew them before version 2.7.
inline bool as_before_2_7 = false;

inline int64_t threads_for(int64_t n) { return multiprocessors.threads_for(n); }

// The numbers that one thread draws one after another.
struct Sequence : philox::Sequence {
  std::optional<float> spare;  // the second of two normal numbers

  float normal() {
    if (spare) return *std::exchange(spare, std::nullopt);
    const uint32_t x = word();
    const uint32_t y = word();
    spare = philox::normal(x, y, 1);
    return philox::normal(x, y, 0);
  }
};

// Advances the generator by what a kernel draws in each thread.
inline Start start(const MaybeGenerator& requested, Device device, uint64_t increment) {
  check_usable();
  Generator generator = generator_for(requested, device);
  auto& of_gpu = static_cast<PhiloxGenerator&>(virtual_generator(generator));
  return {of_gpu.current_seed(), of_gpu.advance(increment)};
}

inline uint64_t increment_for(int64_t n, int numbers) {
  return philox::divided_up(n, threads_for(n) * numbers) * WORDS;
}

template <class T>
using UniformFor = std::conditional_t<
    std::is_same_v<T, double>, philox::UniformDouble, philox::Uniform>;
template <class T>
using NormalFor = std::conditional_t<
    std::is_same_v<T, double>, philox::NormalDouble, philox::Normal>;

// Calls `store(element, numbers, count)` for each run of elements that consecutive threads draw.
template <class Source, class F>
void draw(int64_t n, const Start& begin, const Source& source, F store) {
  philox::draw(n, threads_for(n), begin, source, store);
}

// Fills what the iterator goes through with `transform(number)`.
template <class T, class Source, class F>
void fill(TensorIteratorBase& iter, const MaybeGenerator& generator, const Source& source,
          F transform) {
  const int64_t n = iter.numel();
  if (!n) return;
  const uint64_t increment = increment_for(n, Source::NUMBERS);
  const Start begin = start(generator, iter.device(0), increment);
  if (is_large(n * sizeof(T))) return;
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
  const int64_t by_one_thread = n + 1;  // in the order of the elements
  iter.for_each([&](char** data, const int64_t* strides, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      *reinterpret_cast<T*>(data[0] + k * strides[0]) = *next++;
    }
  }, by_one_thread);
}

// ---- the distributions ----

inline void fill_uniform(TensorIteratorBase& iter, const double from_, const double to_,
                         MaybeGenerator generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "uniform_kernel_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    const auto from = static_cast<scalar_t>(from_);
    const auto to = static_cast<scalar_t>(to_);
    const UniformFor<scalar_t> source{static_cast<Math>(to - from), static_cast<Math>(from)};
    fill<scalar_t>(iter, generator, source, [from, to](Math number) {
      const auto value = static_cast<scalar_t>(number);
      return value == to ? from : value;  // in [from, to), as the words make numbers in (0, 1]
    });
  });
}

inline void fill_normal(const TensorBase& self, const double mean, const double std,
                        MaybeGenerator generator) {
  auto iter = TensorIterator::borrowing_nullary_op(self);
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "normal_kernel_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    const NormalFor<scalar_t> source{static_cast<Math>(std), static_cast<Math>(mean)};
    fill<scalar_t>(iter, generator, source, [](Math number) {
      return static_cast<scalar_t>(number);
    });
  });
}

inline void fill_log_normal(TensorIteratorBase& iter, const double mean, const double std,
                            MaybeGenerator generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "log_normal_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    const NormalFor<scalar_t> source{static_cast<Math>(std), static_cast<Math>(mean)};
    fill<scalar_t>(iter, generator, source, [](Math number) {
      return static_cast<scalar_t>(std::exp(number));
    });
  });
}

inline void fill_exponential(TensorIteratorBase& iter, const double rate,
                             MaybeGenerator generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "exponential_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    constexpr Math HALF_STEP = std::numeric_limits<Math>::epsilon() / 2;
    const Math factor = Math(-1) / Math(rate);
    fill<scalar_t>(iter, generator, UniformFor<scalar_t>(), [factor](Math number) {
      const Math log = number >= 1 - HALF_STEP ? -HALF_STEP : std::log(number);  // never 0
      return static_cast<scalar_t>(factor * log);
    });
  });
}

inline void fill_cauchy(TensorIteratorBase& iter, const double median_, const double sigma_,
                        MaybeGenerator generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "cauchy_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    constexpr bool IS_DOUBLE = std::is_same_v<Math, double>;
    static constexpr Math STEP = IS_DOUBLE ? 0 : std::numeric_limits<Math>::epsilon();
    const Math median = Math(median_);
    const Math sigma = Math(sigma_);
    fill<scalar_t>(iter, generator, UniformFor<scalar_t>(), [median, sigma](Math number) {
      const Math inside = std::clamp(number, STEP, 1 - STEP);  // where the tangent is finite
      const Math tangent = std::tan(c10::pi<Math> * (inside - Math(0.5)));
      return static_cast<scalar_t>(median + sigma * tangent);
    });
  });
}

inline void fill_geometric(TensorIteratorBase& iter, const double p, MaybeGenerator generator) {
  AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "geometric_cuda", [&] {
    using Math = at::DiscreteDistributionType<scalar_t>::type;
    const Math failure = std::log1p(-Math(p));
    fill<scalar_t>(iter, generator, UniformFor<scalar_t>(), [failure](Math number) {
      return static_cast<scalar_t>(std::ceil(std::log(number) / failure));
    });
  });
}

inline void fill_bernoulli(const TensorBase& self, const double p_, MaybeGenerator generator) {
  auto iter = TensorIterator::borrowing_nullary_op(self);
  AT_DISPATCH_ALL_TYPES_AND3(
      kHalf, kBFloat16, kBool, iter.dtype(), "bernoulli_scalar_cuda_", [&] {
    using Math = at::DiscreteDistributionType<scalar_t>::type;
    const Math p = Math(p_);
    fill<scalar_t>(iter, generator, UniformFor<scalar_t>(), [p](Math number) {
      return static_cast<scalar_t>(number < p);
    });
  });
}

// ---- integers ----

// Whether integers of this range are remainders of 64 bits, not of 32, which would make some
// numbers more likely than others by more than a twentieth.
template <class T>
bool is_of_64_bits(uint64_t range) {
  constexpr uint64_t LARGE = uint64_t(1) << 28;
  constexpr uint64_t LARGE_BEFORE_2_7 = uint64_t(1) << 32;
  constexpr bool HOLDS_LARGE = std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
      std::is_same_v<T, float> || std::is_same_v<T, at::BFloat16>;
  if (as_before_2_7) return HOLDS_LARGE && range >= LARGE_BEFORE_2_7;
  return range >= LARGE;
}

inline void fill_from_to(TensorIteratorBase& iter, const uint64_t range, const int64_t base,
                         MaybeGenerator generator) {
  AT_DISPATCH_V2(iter.dtype(), "random_from_to_kernel_cuda", AT_WRAP([&] {
    auto place = [base](uint64_t number) {
      return static_cast<scalar_t>(static_cast<int64_t>(number + base));
    };
    if (is_of_64_bits<scalar_t>(range)) {
      fill<scalar_t>(iter, generator, LongIntegers(), [=](uint64_t number) {
        return place(number % range);
      });
    } else {
      const auto short_range = uint32_t(range);  // 0 is that of all 32 bits
      fill<scalar_t>(iter, generator, Integers(), [=](uint32_t number) {
        return place(short_range ? number % short_range : number);
      });
    }
  }), AT_EXPAND(AT_ALL_TYPES), kBool, kHalf, kBFloat16, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

inline void fill_full_range(TensorIteratorBase& iter, MaybeGenerator generator) {
  constexpr auto NAME = "random_full_64_bits_range_kernel_cuda";
  AT_DISPATCH_ALL_TYPES_AND(kBFloat16, iter.dtype(), NAME, [&] {
    constexpr bool HOLDS_64_BITS = std::is_same_v<scalar_t, int64_t> ||
        std::is_same_v<scalar_t, double> || std::is_same_v<scalar_t, float> ||
        std::is_same_v<scalar_t, at::BFloat16>;
    TORCH_CHECK(HOLDS_64_BITS, NAME, " handles only int64, double, float and bfloat16");
    fill<scalar_t>(iter, generator, LongIntegers(), [](uint64_t number) {
      return static_cast<scalar_t>(static_cast<int64_t>(number));
    });
  });
}

// One more than the greatest number that `random_` draws for a dtype: the largest integer, or the
// largest number before which there are no gaps.
template <class T>
constexpr uint64_t range_of() {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_integral_v<T>) return uint64_t(Limits::max()) + 1;
  else return (uint64_t(1) << Limits::digits) + 1;
}

inline void fill_random(TensorIteratorBase& iter, MaybeGenerator generator) {
  AT_DISPATCH_ALL_TYPES_AND3(kHalf, kBFloat16, kBool, iter.dtype(), "random_kernel_cuda", [&] {
    constexpr bool IS_LONG = std::is_same_v<scalar_t, double> || std::is_same_v<scalar_t, int64_t>;
    using Source = std::conditional_t<IS_LONG, LongIntegers, Integers>;
    fill<scalar_t>(iter, generator, Source(), [](auto number) {
      if constexpr (std::is_same_v<scalar_t, bool>) return bool(number & 1);
      else return static_cast<scalar_t>(number % range_of<scalar_t>());
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
