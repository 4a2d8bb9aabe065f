// RMS normalization as one operation, as CUDA's kernel, while a program's memory is measured: it keeps its input and a
// number for each row. The CPU composes it of operations that keep several copies of the input, in float32 for bfloat16.
#pragma once
#include <ATen/TensorOperators.h>

#include <numeric>

#include "operations.h"

namespace xdevice::rms_norm {
inline std::tuple<Tensor, Tensor> backward(const Tensor& grad, const Tensor& input, IntArrayRef shape, const Tensor& scales,
                                           const std::optional<Tensor>& weight, std::array<bool, 2> needed) {
  std::vector<int64_t> of_rows(input.dim() - shape.size()), of_features(shape.size());
  std::iota(of_rows.begin(), of_rows.end(), 0);
  std::iota(of_features.begin(), of_features.end(), int64_t(of_rows.size()));
  const Tensor wide = grad.to(scales.scalar_type());
  const Tensor normal = input.to(scales.scalar_type()) * scales;
  const bool is_scaled = weight && weight->defined();
  const Tensor inner = is_scaled ? wide * *weight : wide;
  Tensor of_input, of_weight;
  if (needed[0]) of_input = (scales * (inner - normal * (inner * normal).mean(of_features, true))).to(input.scalar_type());
  if (needed[1] && is_scaled) {
    of_weight = wide * normal;
    of_weight = (of_rows.empty() ? of_weight : of_weight.sum(of_rows)).to(weight->scalar_type());
  }
  return {of_input, of_weight};
}

inline void use() {
  static bool used = false;
  if (std::exchange(used, true)) return;
  auto& ours = *new torch::Library(torch::Library::IMPL, "aten", KEY, __FILE__, __LINE__);
  for (auto* name : {"_fused_rms_norm", "_fused_rms_norm_backward"})
    ours.impl(name, torch::CppFunction::makeFromBoxedFunction<&compute>());
  auto& host = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  host.impl("_fused_rms_norm_backward", &backward);
}
}  // namespace xdevice::rms_norm
