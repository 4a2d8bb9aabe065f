// Samples of given probabilities, as CUDA's kernels draw them.
#pragma once
#include <ATen/ops/empty_like.h>

#include <numeric>

#include "random.h"

namespace xdevice::random {

// ---- Bernoulli's trials with a probability for each element: a thread draws for four neighbours ----

// The order of the dimensions in which CUDA's kernel reads the two tensors: by decreasing strides, where an exchange of
// two dimensions suits one tensor and does not harm the other.
inline std::vector<int64_t> order_for(const Tensor& a, const Tensor& b) {
  std::vector<int64_t> order(a.dim());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i + 1 < order.size(); ++i)
    for (size_t j = i + 1; j < order.size(); ++j) {
      const int64_t outer = order[i], inner = order[j];
      if (a.size(outer) == 1 || a.size(inner) == 1) continue;
      const auto gain_a = a.stride(inner) - a.stride(outer), gain_b = b.stride(inner) - b.stride(outer);
      if (std::max(gain_a, gain_b) > 0 && std::min(gain_a, gain_b) >= 0) std::swap(order[i], order[j]);
    }
  return order;
}

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
  p = p.to(self.device(), self.scalar_type() == kDouble ? kDouble : kFloat).expand(self.sizes());
  const auto order = order_for(self, p);
  Tensor target = self.permute(order);
  p = p.permute(order).contiguous();
  Tensor out = target.is_contiguous() ? target : at::empty_like(target, MemoryFormat::Contiguous);
  AT_DISPATCH_ALL_TYPES_AND3(kHalf, kBFloat16, kBool, self.scalar_type(), "bernoulli_tensor_cuda_self_", [&] {
    using P = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    fill_trials(out.mutable_data_ptr<scalar_t>(), p.const_data_ptr<P>(), self.numel(), begin);
  });
  if (!out.is_same(target)) target.copy_(out);
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
