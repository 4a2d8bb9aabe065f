// The operations with a kernel of their own: factories, softmax, dropout, and recurrent layers.
#pragma once
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include "operations.h"

namespace xdevice {
inline void check_dense(const std::optional<Layout>& layout, std::optional<bool> pin) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(kStrided) == kStrided,
      layout.value_or(kStrided), " tensors are not supported on virtual GPUs; make it on the CPU");
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
}

inline ScalarType type_or_default(std::optional<ScalarType> type) {
  return type.value_or(get_default_dtype_as_scalartype());
}

// Fills new memory with NaN or the largest integers under deterministic algorithms, as torch does for the CPU and CUDA.
inline Tensor filled(Tensor tensor) {
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()))
    at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

inline Tensor empty(IntArrayRef size, std::optional<ScalarType> type, std::optional<Layout> layout, std::optional<Device> d,
             std::optional<bool> pin, std::optional<MemoryFormat> format) {
  check_dense(layout, pin);
  c10::OptionalDeviceGuard guard(d);
  return filled(at::detail::empty_generic(size, &memory, DispatchKeySet(KEY), type_or_default(type), format));
}

inline Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> type,
                     std::optional<Layout> layout, std::optional<Device> d, std::optional<bool> pin) {
  check_dense(layout, pin);
  c10::OptionalDeviceGuard guard(d);
  return filled(at::detail::empty_strided_generic(size, stride, &memory, DispatchKeySet(KEY), type_or_default(type)));
}

// torch's lazy zeros have no memory, and only its own kernels can read them.
inline Tensor zeros(IntArrayRef size, std::optional<ScalarType> type, std::optional<Layout> layout, std::optional<Device> d,
             std::optional<bool> pin) {
  return empty(size, type, layout, d, pin, std::nullopt).zero_();
}

// Equal to the CPU's dropout bit for bit: the noise is drawn and scaled before the multiplication.
inline std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p == 0) return {x.clone(), at::ones_like(x, kBool)};
  Tensor noise = at::empty_like(x).bernoulli_(1 - p).div_(1 - p);
  return {x.mul(noise), noise.to(kBool)};
}

inline Tensor dropout_backward(const Tensor& grad, const Tensor& mask, double scale) {
  if (auto row = dtypes.find("native_dropout_backward"); row != dtypes.end())
    refuse_as_cuda({&row->second}, grad.scalar_type(), nullptr);
  Tensor noise = mask.to(grad.scalar_type());
  return grad.mul(scale ? noise.div_(1 / scale) : noise.mul_(0));
}

// For GPUs alone torch lets softmax widen half precision, and its backward narrow it again.
inline void widened(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  IValue &x = stack->rbegin()[2], &widen = stack->back();
  if (widen.toBool()) x = x.toTensor().to(kFloat), widen = false;
  compute(op, keys, stack);
}

inline void narrowed(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  auto type = stack->back().toScalarType();
  stack->back() = stack->rbegin()[3].toTensor().scalar_type();
  compute(op, keys, stack);
  stack->back() = stack->back().toTensor().to(type);
}

inline void record_stream(Tensor&, Stream) {}

// For questions whether a library for GPUs computes an operation: none does.
inline void return_false(const c10::OperatorHandle& op, Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, false);
}

// Cells of LSTM and GRU, for which torch has fused kernels on other devices than the CPU. Here they are composed of
// operations, in the CPU's order. Shapes are (batch, features), with the gates concatenated along the features.
using MaybeTensor = std::optional<Tensor>;

inline Tensor biased(const Tensor& x, const MaybeTensor& bias) { return bias && bias->defined() ? x.add(*bias) : x; }

// The last result is for a fused backward, and is empty.
inline std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cell,
                                               const MaybeTensor& input_bias, const MaybeTensor& hidden_bias) {
  auto gates = biased(hidden_gates, hidden_bias).add(biased(input_gates, input_bias)).chunk(4, 1);
  Tensor cy = gates[1].sigmoid().mul(cell).add(gates[0].sigmoid().mul(gates[2].tanh()));
  return {gates[3].sigmoid().mul(cy.tanh()), cy, cell.new_empty({0})};
}

inline std::tuple<Tensor, Tensor> gru(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hidden,
                                      const MaybeTensor& input_bias, const MaybeTensor& hidden_bias) {
  auto x = biased(input_gates, input_bias).chunk(3, 1), h = biased(hidden_gates, hidden_bias).chunk(3, 1);
  Tensor r = h[0].add(x[0]).sigmoid(), z = h[1].add(x[1]).sigmoid(), n = x[2].add(h[2].mul(r)).tanh();
  return {hidden.sub(n).mul(z).add(n), hidden.new_empty({0})};
}

// Whether torch would compute this LSTM on the CPU by oneDNN's kernels, which compute a layer each.
inline bool can_use_onednn(const Tensor& x, TensorList state, TensorList weights) {
  auto fits = [&](const Tensor& t) {
    return t.device() == x.device() && t.scalar_type() == kFloat && !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  };
  auto autocast = c10::getAutocastRelatedKeySetFromBackend(c10::toBackendComponent(KEY));  // excluded where it is off
  return at::globalContext().hasMKLDNN() && at::globalContext().userEnabledMkldnn() &&
      c10::impl::tls_is_dispatch_keyset_excluded(autocast) && fits(x) && std::all_of(state.begin(), state.end(), fits) &&
      std::all_of(weights.begin(), weights.end(), fits) && x.numel() && state.size() == 2 &&
      state[0].size(-1) == state[1].size(-1);  // oneDNN has no projections
}

inline std::tuple<Tensor, Tensor, Tensor> lstm_with_onednn(const Tensor& input, TensorList state, TensorList weights,
                                                           bool has_biases, int64_t layers, double p, bool train,
                                                           bool bidirectional, bool batch_first) {
  if (!can_use_onednn(input, state, weights))
    return at::native::lstm(input, state, weights, has_biases, layers, p, train, bidirectional, batch_first);
  constexpr int64_t LSTM = 2;  // oneDNN's number for the kind of cell
  int64_t directions = bidirectional ? 2 : 1, weights_per_layer = has_biases ? 4 : 2;
  Tensor x = (batch_first ? input.transpose(0, 1) : input).contiguous();
  Tensor hx = state[0].contiguous(), cx = state[1].contiguous();
  std::vector<Tensor> hy, cy;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Tensor> outputs;  // one for each direction
    for (int64_t direction = 0; direction < directions; ++direction) {
      int64_t i = layer * directions + direction;
      auto w = weights.slice(i * weights_per_layer, weights_per_layer);
      Tensor zero_bias = has_biases ? Tensor() : w[0].new_zeros({w[0].size(0)});
      auto [y, h, c, workspace] = at::mkldnn_rnn_layer(x, w[0], w[1], has_biases ? w[2] : zero_bias,
          has_biases ? w[3] : zero_bias, hx[i], cx[i], direction > 0, {}, LSTM, hx.size(2), layers, has_biases,
          bidirectional, batch_first, train);
      outputs.push_back(y), hy.push_back(h), cy.push_back(c);
    }
    x = bidirectional ? at::cat(outputs, -1) : outputs[0];
    if (p && train && layer < layers - 1) x = at::dropout(x, p, true);
  }
  return {batch_first ? x.transpose(0, 1) : x, at::stack(hy), at::stack(cy)};
}
}  // namespace xdevice
