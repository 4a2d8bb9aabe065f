// Attention with dropout as one operation, as CUDA's fused kernels: it keeps queries, keys, values and the result for
// backward, and not the weights, which are computed again. Its dropout is that of the memory-efficient kernel, which
// draws one thread's words in the order of the weights.
#pragma once
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/div.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>

#include "random.h"

namespace xdevice::random {
using MaybeMask = std::optional<Tensor>;

struct IgnoreWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// The seed and the offset of the words that a call draws.
inline std::tuple<int64_t, int64_t> start_attention(const Tensor& q, const Tensor& k) {
  const Start begin = start(std::nullopt, q.device(), q.size(0) * q.size(1) * q.size(2) * k.size(2));
  return {int64_t(begin.seed), int64_t(begin.offset)};
}

// Which weights are kept, of each row of queries and each column of keys.
inline Tensor kept_weights(const Tensor& q, const Tensor& k, double p, const Start& begin) {
  Tensor kept = at::empty({q.size(0), q.size(1), q.size(2), k.size(2)}, kBool);
  const int64_t n = kept.numel();
  auto* flags = kept.mutable_data_ptr<bool>();
  for (int64_t first = 0; first < n; first += WORDS) {
    const philox::Quad quad = philox::draw_one(begin.seed, (begin.offset + first) / WORDS, 0);
    const int64_t count = std::min<int64_t>(n - first, WORDS);
    for (int64_t i = 0; i < count; ++i) flags[first + i] = philox::uniform(quad[i]) > float(p);
  }
  return kept;
}

// A tensor of a head's vectors, in the memory's order of CUDA's kernels: the heads of a token are neighbours.
inline Tensor by_token(const Tensor& like, int64_t features) {
  return at::empty({like.size(0), like.size(2), like.size(1), features}, like.options()).transpose(1, 2);
}

// The result and the logarithms of the sums, for which the CPU has no use.
inline std::tuple<Tensor, Tensor> attended(const Tensor& q, const Tensor& v) {
  return {by_token(q, v.size(3)), at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(kFloat))};
}

inline std::tuple<Tensor, Tensor> attend(const Tensor& q, const Tensor& k, const Tensor& v, const MaybeMask& mask, double p,
                                         bool causal, std::optional<double> scale, int64_t seed, int64_t offset) {
  const Tensor kept = kept_weights(q, k, p, {uint64_t(seed), uint64_t(offset)});
  IgnoreWarnings handler;  // torch warns that such a mask is for tests
  c10::WarningUtils::WarningHandlerGuard guard(&handler);
  auto results = attended(q, v);
  std::get<0>(results).copy_(
      std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, mask, p, causal, kept, scale)));
  return results;
}

inline std::tuple<Tensor, Tensor> attend_on_meta(const Tensor& q, const Tensor&, const Tensor& v, const MaybeMask&, double,
                                                 bool, std::optional<double>, int64_t, int64_t) {
  return attended(q, v);
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

inline Gradients attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const MaybeMask& mask,
                                 double p, bool causal, std::optional<double> scale, int64_t seed, int64_t offset) {
  const Tensor dropped = kept_weights(q, k, p, {uint64_t(seed), uint64_t(offset)}).logical_not_();
  const Tensor weights =
      std::get<1>(at::_scaled_dot_product_attention_math(q, k, v, mask, 0, causal, std::nullopt, scale));
  const double factor = std::sqrt(scale.value_or(1 / std::sqrt(double(q.size(3)))));
  const double kept_share = 1 - p;
  const Tensor scores = at::_softmax_backward_data(
      at::matmul(grad, v.div(kept_share).transpose(-2, -1)).masked_fill(dropped, 0), weights, -1, weights.scalar_type());
  auto copied = [](const Tensor& x) { return by_token(x, x.size(3)).copy_(x); };
  return {copied(at::matmul(scores, k.mul(factor)).mul(factor)),
      copied(at::matmul(scores.transpose(-2, -1), q.mul(factor)).mul(factor)),
      copied(at::matmul(weights.masked_fill(dropped, 0).transpose(-2, -1), grad).div(kept_share))};
}

inline Gradients attend_backward_on_meta(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const MaybeMask&,
                                         double, bool, std::optional<double>, int64_t, int64_t) {
  return {by_token(q, q.size(3)), by_token(k, k.size(3)), by_token(v, v.size(3))};
}

inline void register_attention(torch::Library& library) {
#define ATTENTION "Tensor q, Tensor k, Tensor v, Tensor? mask, float p, bool causal, float? scale, int seed, int offset"
  library.def("attend(" ATTENTION ") -> (Tensor, Tensor)");
  library.def("attend_backward(Tensor grad, " ATTENTION ") -> (Tensor, Tensor, Tensor)");
  library.def("start_attention(Tensor q, Tensor k) -> (int, int)");
  library.impl("start_attention", torch::dispatch(KEY, &start_attention));
  library.impl("attend", torch::dispatch(c10::DispatchKey::CPU, &attend));
  library.impl("attend", torch::dispatch(c10::DispatchKey::Meta, &attend_on_meta));
  library.impl("attend_backward", torch::dispatch(c10::DispatchKey::CPU, &attend_backward));
  library.impl("attend_backward", torch::dispatch(c10::DispatchKey::Meta, &attend_backward_on_meta));
}
}  // namespace xdevice::random
