// Cells of LSTM and GRU, which torch computes off the CPU by fused kernels. Here they are of the CPU's operations, in
// the CPU's order; shapes are (batch, features), with the gates concatenated along the features.
#pragma once
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "operations.h"

namespace xdevice {
using MaybeTensor = std::optional<Tensor>;

// The host's aliases of virtual tensors on one device, and the way back.
struct Aliases {
  AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard full{c10::DispatchKey::AutocastCPU};
  const char* operation;
  std::optional<Device> here;

  explicit Aliases(const char* name) : operation(name) { check_usable(); }
  Tensor in(const Tensor& t) {
    if (!t.defined()) return t;
    if (!here) here = t.device();
    if (t.device() != *here || here->type() != TYPE) mixed(operation, *here, t.device());
    return like(t, host_of(t.storage()), c10::DispatchKey::CPU);
  }
  Tensor in(const MaybeTensor& t) { return t ? in(*t) : Tensor(); }
  Tensor out(const Tensor& t) { return t.defined() ? like(t, virtual_of(t.storage(), here->index()), KEY) : t; }
};

inline Tensor biased(const Tensor& gates, const Tensor& bias) { return bias.defined() ? gates.add(bias) : gates; }

inline Tensor rest(const Tensor& share) { return share.neg().add_(1); }

inline Tensor joined(std::initializer_list<Tensor> parts) { return at::cat(std::vector<Tensor>(parts), 1); }

inline std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cell,
                                               const MaybeTensor& input_bias, const MaybeTensor& hidden_bias) {
  Aliases aliases("aten::_thnn_fused_lstm_cell");
  Tensor x = biased(aliases.in(input_gates), aliases.in(input_bias));
  Tensor all = biased(aliases.in(hidden_gates), aliases.in(hidden_bias)).add(x);  // and then what backward needs
  auto gates = all.chunk(4, 1);
  gates[0].sigmoid_(), gates[1].sigmoid_(), gates[2].tanh_(), gates[3].sigmoid_();
  Tensor cy = gates[1].mul(aliases.in(cell)).add_(gates[0].mul(gates[2]));
  return {aliases.out(gates[3].mul(cy.tanh())), aliases.out(cy), aliases.out(all)};
}

inline std::tuple<Tensor, Tensor, Tensor> lstm_backward(const MaybeTensor& grad_hy, const MaybeTensor& grad_cy,
                                                        const Tensor& cell, const Tensor& cell_after,
                                                        const Tensor& workspace, bool has_bias) {
  Aliases aliases("aten::_thnn_fused_lstm_cell_backward_impl");
  Tensor cx = aliases.in(cell), cy = aliases.in(cell_after), squashed = cy.tanh(), all = aliases.in(workspace);
  auto gates = all.chunk(4, 1);
  Tensor i = gates[0], f = gates[1], g = gates[2], o = gates[3], grad_h = aliases.in(grad_hy), given = aliases.in(grad_cy);
  if (!grad_h.defined()) grad_h = at::zeros_like(cy);
  Tensor grad_c = grad_h.mul(o).mul_(rest(squashed.mul(squashed)));
  if (given.defined()) grad_c.add_(given);
  Tensor grad = joined({grad_c.mul(g).mul_(i).mul_(rest(i)), grad_c.mul(cx).mul_(f).mul_(rest(f)),
                         grad_c.mul(i).mul_(rest(g.mul(g))), grad_h.mul(squashed).mul_(o).mul_(rest(o))});
  Tensor bias = has_bias ? grad.sum(0) : grad.new_empty({0});
  return {aliases.out(grad), aliases.out(grad_c.mul(f)), aliases.out(bias)};
}

inline std::tuple<Tensor, Tensor> gru(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hidden,
                                      const MaybeTensor& input_bias, const MaybeTensor& hidden_bias) {
  Aliases aliases("aten::_thnn_fused_gru_cell");
  auto x = biased(aliases.in(input_gates), aliases.in(input_bias)).chunk(3, 1);
  auto h = biased(aliases.in(hidden_gates), aliases.in(hidden_bias)).chunk(3, 1);
  Tensor hx = aliases.in(hidden), r = h[0].add(x[0]).sigmoid_(), z = h[1].add(x[1]).sigmoid_();
  Tensor n = x[2].add(h[2].mul(r)).tanh_();
  return {aliases.out(hx.sub(n).mul_(z).add_(n)), aliases.out(joined({r, z, n, hx, h[2]}))};
}

inline std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                       bool has_bias) {
  Aliases aliases("aten::_thnn_fused_gru_cell_backward");
  Tensor given = aliases.in(grad_hy);
  auto kept = aliases.in(workspace).chunk(5, 1);
  Tensor r = kept[0], z = kept[1], n = kept[2], hx = kept[3], hn = kept[4];
  Tensor grad_n = given.mul(rest(z)).mul_(rest(n.mul(n)));
  Tensor grad_z = given.mul(hx.sub(n)).mul_(z).mul_(rest(z));
  Tensor grad_r = grad_n.mul(hn).mul_(r).mul_(rest(r));
  Tensor of_input = joined({grad_r, grad_z, grad_n}), of_hidden = joined({grad_r, grad_z, grad_n.mul(r)});
  auto bias = [&](const Tensor& grad) { return aliases.out(has_bias ? grad.sum(0) : grad.new_empty({0})); };
  return {aliases.out(of_input), aliases.out(of_hidden), aliases.out(given.mul(z)), bias(of_input), bias(of_hidden)};
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

inline void register_rnn(torch::Library& library, torch::Library& autograd) {
  library.impl("lstm.input", &lstm_of_layers);
  autograd.impl("lstm.input", &lstm_of_layers);
  library.impl("_thnn_fused_lstm_cell", &lstm);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_backward);
  library.impl("_thnn_fused_gru_cell", &gru);
  library.impl("_thnn_fused_gru_cell_backward", &gru_backward);
}
}  // namespace xdevice
