// Cells of LSTM and GRU, which torch computes off the CPU by fused kernels. Here they are composed of operations, in the
// CPU's order; shapes are (batch, features), with the gates concatenated along the features.
#pragma once
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include "operations.h"

namespace xdevice {
using MaybeTensor = std::optional<Tensor>;

inline Tensor biased(const Tensor& gates, const MaybeTensor& bias) {
  return bias && bias->defined() ? gates.add(*bias) : gates;
}

// The last result is what a fused backward would need.
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

// Whether torch would compute this LSTM on the CPU by oneDNN's kernels of whole layers.
inline bool takes_layers(const Tensor& x, TensorList state, TensorList weights) {
  auto fits = [&](const Tensor& t) {
    return t.device() == x.device() && t.scalar_type() == kFloat && !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  };
  auto autocast = c10::getAutocastRelatedKeySetFromBackend(c10::toBackendComponent(KEY));  // excluded where it is off
  return at::globalContext().hasMKLDNN() && at::globalContext().userEnabledMkldnn() &&
      c10::impl::tls_is_dispatch_keyset_excluded(autocast) && fits(x) && std::all_of(state.begin(), state.end(), fits) &&
      std::all_of(weights.begin(), weights.end(), fits) && x.numel() && state.size() == 2 &&
      state[0].size(-1) == state[1].size(-1);  // oneDNN has no projections
}

inline std::tuple<Tensor, Tensor, Tensor> lstm_of_layers(const Tensor& input, TensorList state, TensorList weights,
                                                         bool has_biases, int64_t layers, double share, bool train,
                                                         bool bidirectional, bool batch_first) {
  if (!takes_layers(input, state, weights))
    return at::native::lstm(input, state, weights, has_biases, layers, share, train, bidirectional, batch_first);
  constexpr int64_t LSTM = 2;  // oneDNN's number for the kind of cell
  int64_t directions = bidirectional ? 2 : 1, each = has_biases ? 4 : 2;
  Tensor x = (batch_first ? input.transpose(0, 1) : input).contiguous();
  Tensor hx = state[0].contiguous(), cx = state[1].contiguous();
  std::vector<Tensor> hy, cy;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Tensor> ways;
    for (int64_t way = 0; way < directions; ++way) {
      int64_t i = layer * directions + way;
      auto own = weights.slice(i * each, each);
      Tensor none = has_biases ? Tensor() : own[0].new_zeros({own[0].size(0)});
      auto [y, h, c, workspace] = at::mkldnn_rnn_layer(x, own[0], own[1], has_biases ? own[2] : none,
          has_biases ? own[3] : none, hx[i], cx[i], way > 0, {}, LSTM, hx.size(2), layers, has_biases, bidirectional,
          batch_first, train);
      ways.push_back(y), hy.push_back(h), cy.push_back(c);
    }
    x = bidirectional ? at::cat(ways, -1) : ways[0];
    if (share && train && layer < layers - 1) x = at::dropout(x, share, true);
  }
  return {batch_first ? x.transpose(0, 1) : x, at::stack(hy), at::stack(cy)};
}

// For autograd too, which differentiates them as what they are composed of.
inline void register_rnn(torch::Library& library, torch::Library& autograd) {
  for (auto* ours : {&library, &autograd}) {
    ours->impl("lstm.input", &lstm_of_layers);
    ours->impl("_thnn_fused_lstm_cell", &lstm);
    ours->impl("_thnn_fused_gru_cell", &gru);
  }
}
}  // namespace xdevice
