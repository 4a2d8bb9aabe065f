// Samples of given probabilities, as CUDA's kernels draw them.
#pragma once
#include <ATen/ops/empty_like.h>

#include <numeric>

#include "random.h"
#include "without_values.h"

namespace xdevice::random {

// ---- Bernoulli's trials with a probability for each element: a thread draws for four neighbours

// Whether the inner dimension has a larger stride than the outer one in one tensor, and no smaller
// one in the other.
inline bool should_be_outer(int64_t inner, int64_t outer, const Tensor& a, const Tensor& b) {
  if (a.size(outer) == 1 || a.size(inner) == 1) return false;
  const int64_t gain_a = a.stride(inner) - a.stride(outer);
  const int64_t gain_b = b.stride(inner) - b.stride(outer);
  return std::max(gain_a, gain_b) > 0 && std::min(gain_a, gain_b) >= 0;
}

// The order of the dimensions in which CUDA's kernel reads the two tensors: by decreasing strides.
inline std::vector<int64_t> order_for(const Tensor& a, const Tensor& b) {
  std::vector<int64_t> order(a.dim());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i + 1 < order.size(); ++i)
    for (size_t j = i + 1; j < order.size(); ++j)
      if (should_be_outer(order[j], order[i], a, b)) std::swap(order[i], order[j]);
  return order;
}

template <class T, class P>
void fill_trials(T* out, const P* probabilities, int64_t n, const Start& begin) {
  constexpr int64_t NEIGHBOURS = 4;
  const int64_t threads = philox::divided_up(n, NEIGHBOURS);
  auto store = [=](int64_t i, float number) {
    out[i] = static_cast<T>(number <= probabilities[i]);
  };
  philox::draw_for_neighbours(n, threads, NEIGHBOURS, begin, store);
}

inline void fill_trials(const TensorBase& self_, const TensorBase& p_, MaybeGenerator generator) {
  constexpr uint64_t INCREMENT = 10;
  Tensor self{self_}, p{p_};
  TORCH_CHECK(at::isFloatingType(p.scalar_type()),
      "expected probabilities tensor to have floating type, got ", p.scalar_type());
  const Start begin = start(generator, self.device(), INCREMENT);
  const auto type = self.scalar_type() == kDouble ? kDouble : kFloat;
  p = p.to(self.device(), type).expand(self.sizes());
  const auto order = order_for(self, p);
  p = p.permute(order).contiguous();
  Tensor target = self.permute(order);
  Tensor out = target;
  if (!target.is_contiguous()) out = at::empty_like(target, MemoryFormat::Contiguous);
  AT_DISPATCH_ALL_TYPES_AND3(
      kHalf, kBFloat16, kBool, self.scalar_type(), "bernoulli_tensor_cuda_self_", [&] {
    using P = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    const P* probabilities = p.const_data_ptr<P>();
    fill_trials(out.mutable_data_ptr<scalar_t>(), probabilities, self.numel(), begin);
  });
  if (!out.is_same(target)) target.copy_(out);
}

// ---- samples with replacement: a thread for each sample of each row ----

// The category with this number within its part of the sums.
template <class T>
int64_t find(const T* sums, const T* probabilities, int64_t categories, T number) {
  int64_t i = std::lower_bound(sums, sums + categories, number) - sums;
  i = std::min(i, categories - 1);
  while (i >= 1 && probabilities[i] == T(0)) --i;
  return i;
}

inline void sample_with_replacement(Tensor& result, const Tensor& self, int64_t samples,
                                    MaybeGenerator generator) {
  constexpr int64_t SAMPLES_OF_BLOCK = 128;
  constexpr int64_t MOST_ROWS_AT_ONCE = 65535;
  const Tensor weights = (self.dim() == 1 ? self.unsqueeze(0) : self).contiguous();
  const int64_t rows = weights.size(0);
  const int64_t categories = weights.size(1);
  const int64_t rows_at_once = std::clamp<int64_t>(rows, 1, MOST_ROWS_AT_ONCE);
  const int64_t turns = philox::divided_up(rows, rows_at_once);
  const int64_t blocks_of_row = philox::divided_up(samples, SAMPLES_OF_BLOCK);
  const int64_t threads_of_row = blocks_of_row * SAMPLES_OF_BLOCK;
  const Tensor probabilities = weights.div(weights.sum(-1, true)).contiguous();
  const Tensor sums = probabilities.cumsum(-1).contiguous();
  const Start begin = start(generator, self.device(), turns * WORDS);
  result.resize_({rows, samples});
  if (!values::exist(self)) values::set(result, false);
  else AT_DISPATCH_FLOATING_TYPES_AND2(
      kHalf, kBFloat16, self.scalar_type(), "multinomial_kernel_cuda", [&] {
    auto* out = result.mutable_data_ptr<int64_t>();
    const auto* p = probabilities.const_data_ptr<scalar_t>();
    const auto* s = sums.const_data_ptr<scalar_t>();
    Words words;
    for (int64_t row = 0; row < rows; ++row, p += categories, s += categories)
      for (int64_t first = 0; first < samples; first += WIDTH) {
        const int64_t thread = row % rows_at_once * threads_of_row + first;
        begin.draw(row / rows_at_once, thread, words);
        const int64_t count = std::min<int64_t>(samples - first, WIDTH);
        for (int64_t k = 0; k < count; ++k) {
          const auto number = static_cast<scalar_t>(philox::uniform(words.of[0][k]));
          *out++ = find(s, p, categories, number);
        }
      }
  });
  if (self.dim() == 1) result.resize_({samples});
}

inline void replace_sampling() {
  using Trials = void (*)(const TensorBase&, const TensorBase&, MaybeGenerator);
  at::native::bernoulli_tensor_stub.set_cuda_dispatch_ptr(static_cast<Trials>(&fill_trials));
  at::native::multinomial_with_replacement_stub.set_cuda_dispatch_ptr(&sample_with_replacement);
}
}  // namespace xdevice::random
