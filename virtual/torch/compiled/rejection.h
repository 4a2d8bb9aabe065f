// Distributions that CUDA's kernels draw by rejection: of an element's numbers the first ones that
// are accepted count.
#pragma once
#include <ATen/native/Distributions.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/poisson.h>

#include "poisson.h"
#include "random.h"

namespace xdevice::random {

// Stores `draw(sequence, value)` for each value, each of which has a thread of its own.
template <class T, class F>
void draw_each(const Tensor& values, const Start& begin, Tensor& result, F draw) {
  const T* source = values.const_data_ptr<T>();
  T* target = result.mutable_data_ptr<T>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    target[i] = draw(Sequence{begin, uint64_t(i)}, source[i]);
  }
}

// ---- Poisson's distribution ----

// Draws numbers of medium rates on the CPU.
inline Tensor poisson_on_cpu(const Tensor& rates, const Start& begin) {
  auto* data = const_cast<void*>(rates.const_data_ptr());
  Tensor on_cpu = at::from_blob(data, rates.sizes(), rates.options().device(kCPU));
  return at::poisson(on_cpu, at::detail::createCPUGenerator(mixed(begin.seed, begin.offset)));
}

inline Tensor poisson(const Tensor& rates_, MaybeGenerator generator) {
  constexpr uint64_t INCREMENT = 20;
  const Start begin = start(generator, rates_.device(), INCREMENT);
  Tensor rates = rates_.contiguous(), result = at::empty(rates.sizes(), rates.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, rates.scalar_type(), "poisson_cuda", [&] {
    Tensor medium;
    draw_each<scalar_t>(rates, begin, result, [&](const Sequence& sequence, const scalar_t& value) {
      const double rate = value;
      TORCH_CHECK(rate >= 0, "invalid Poisson rate, expected rate to be non-negative");
      if (rate < philox::LEAST_OF_MEDIUM) {
        return scalar_t(philox::poisson_by_products(sequence, float(rate)));
      }
      if (rate > philox::GREATEST_OF_MEDIUM) {
        return scalar_t(philox::poisson_by_normal(sequence, rate));
      }
      if (!medium.defined()) medium = poisson_on_cpu(rates, begin);
      return medium.const_data_ptr<scalar_t>()[sequence.thread];
    });
  });
  return result;
}

// ---- the gamma and Dirichlet's distributions ----

inline Tensor gamma(const Tensor& alpha_, MaybeGenerator generator) {
  constexpr uint64_t INCREMENT = 10;
  const Start begin = start(generator, alpha_.device(), INCREMENT);
  Tensor alpha = alpha_.contiguous(), result = at::empty(alpha.sizes(), alpha.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, alpha.scalar_type(), "gamma_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    draw_each<scalar_t>(alpha, begin, result, [](Sequence sequence, scalar_t value) {
      auto uniform = [&] { return sequence.uniform(); };
      auto normal = [&] { return sequence.normal(); };
      BaseSampler<Math, decltype(uniform)> uniforms(uniform);
      BaseSampler<Math, decltype(normal)> normals(normal);
      using U = decltype(uniform);
      using N = decltype(normal);
      const scalar_t drawn = sample_gamma<scalar_t, Math, U, N>(value, uniforms, normals);
      return std::max(drawn, std::numeric_limits<scalar_t>::min());
    });
  });
  return result;
}

inline Tensor dirichlet(const Tensor& alpha, MaybeGenerator generator) {
  Tensor drawn = gamma(alpha, generator);
  Tensor shares = drawn.div_(drawn.sum(-1, true));
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, alpha.scalar_type(), "dirichlet", [&] {
    using Limits = std::numeric_limits<scalar_t>;
    shares.clamp_(double(Limits::min()), 1 - double(Limits::epsilon()));
  });
  return shares;
}

// ---- the binomial distribution: a thread draws for several elements, one after another ----

inline Tensor binomial(const Tensor& count, const Tensor& p, MaybeGenerator generator) {
  constexpr uint64_t INCREMENT = 42;
  constexpr int64_t THREADS_OF_BLOCK = 128;
  constexpr int64_t ELEMENTS_OF_BLOCK = THREADS_OF_BLOCK * 8;
  const Start begin = start(generator, count.device(), INCREMENT);
  Tensor counts = count.contiguous(), chances = p.expand(count.sizes()).contiguous();
  Tensor result = at::empty(count.sizes(), count.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, count.scalar_type(), "binomial_cuda", [&] {
    using Math = at::opmath_type<scalar_t>;
    const auto* number = counts.const_data_ptr<scalar_t>();
    const auto* chance = chances.const_data_ptr<scalar_t>();
    auto* target = result.mutable_data_ptr<scalar_t>();
    const int64_t n = count.numel();
    const int64_t threads = philox::divided_up(n, ELEMENTS_OF_BLOCK) * THREADS_OF_BLOCK;
    for (int64_t thread = 0; thread < threads; ++thread) {
      Sequence sequence{begin, uint64_t(thread)};
      auto fraction = [&] { return float(sequence.word() & ((1 << 24) - 1)) * 0x1p-24f; };
      using F = decltype(fraction);
      BaseSampler<Math, F> fractions(fraction);
      const int64_t block = thread / THREADS_OF_BLOCK;
      const int64_t first = block * ELEMENTS_OF_BLOCK + thread % THREADS_OF_BLOCK;
      const int64_t end = std::min(n, first + ELEMENTS_OF_BLOCK);
      for (int64_t i = first; i < end; i += THREADS_OF_BLOCK) {
        target[i] = sample_binomial<scalar_t, Math, F>(number[i], chance[i], fractions);
      }
    }
  });
  return result;
}
}  // namespace xdevice::random
