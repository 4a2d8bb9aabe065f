// Values that CUDA's own code reads on any device, or moves to where they are needed. Here the same calls are made: they
// wait, and are reported, like the program's own.
#pragma once
#include <ATen/ops/item.h>
#include <ATen/ops/scalar_tensor.h>

#include "mixed.h"
#include "plan.h"

namespace xdevice::taken {
inline bool is_mask(const Tensor& t) { return t.scalar_type() == kBool || t.scalar_type() == kByte; }

// A value without dimensions is taken from any device. In a strict block that of another GPU is refused.
inline bool is_taken(const c10::OperatorHandle& op, const Tensor& value, Device to) {
  if (value.dim() || value.device() == to) return false;
  if (!value.is_cpu()) raise_strict(op.schema().name(), to, value.device());
  return true;
}

// Whether the assignment fills a mask on the tensor's device by a number on the CPU, which CUDA passes to the kernel.
inline bool fills_mask(const Tensor& self, const IValue* arguments, const Tensor& value, int indices) {
  const auto& list = arguments[indices].toListRef();
  auto* index = list.size() == 1 ? tensor_in(list[0]) : nullptr;
  return value.is_cpu() && value.numel() == 1 && !arguments[indices + 2].toBool() && index && is_mask(*index) &&
      index->device() == self.device();
}

// As in `_index_put_impl_`. Indices on the CPU stay there: the operation itself takes them.
inline void move_for_assignment(const c10::OperatorHandle& op, const Plan& plan, IValue* arguments) {
  const Tensor self = arguments[0].toTensor(), value = arguments[plan.value].toTensor();
  if (!fills_mask(self, arguments, value, plan.indices) && is_taken(op, value, self.device()))
    arguments[plan.value] = value.to(self.device());
  auto indices = arguments[plan.indices].toList();
  bool is_elsewhere = false;
  auto elsewhere = [&](const IValue& v) {
    auto* t = tensor_in(v);
    return t && !t->is_cpu() && t->device() != self.device();
  };
  for (const IValue& v : indices.vec()) is_elsewhere |= elsewhere(v);
  if (!is_elsewhere) return;
  indices = indices.copy();
  for (size_t i = 0; i < indices.size(); ++i) {
    IValue index = indices.get(i);
    if (!elsewhere(index)) continue;
    raise_strict(op.schema().name(), self.device(), index.toTensor().device());
    indices.set(i, index.toTensor().to(self.device()));
  }
  arguments[plan.indices] = indices;
}

// As in `where`: to the first device that is not the CPU.
inline void move_for_choice(const c10::OperatorHandle& op, IValue* arguments) {
  auto* first = std::find_if(arguments, arguments + 3, [](const IValue& v) { return !v.toTensor().is_cpu(); });
  const Device device = first->toTensor().device();
  for (int i = 0; i < 3; ++i)
    if (Tensor value = arguments[i].toTensor(); is_taken(op, value, device)) arguments[i] = value.to(device);
}

// As in `fill_`, `masked_fill_` and `index_fill_`. The first copies a value of its own device.
inline void read(const c10::OperatorHandle& op, const Plan& plan, IValue* arguments) {
  const Tensor self = arguments[0].toTensor(), value = arguments[plan.value].toTensor();
  bool is_left = value.device() == self.device() && (plan.arguments == 2 || !computing);
  if (value.dim() || value.is_cpu() || is_left) return;
  TORCH_CHECK(!self.is_cpu() || op.schema().name() != "aten::masked_fill_",
      "masked_fill_: Expected inputs to be on same device");
  is_taken(op, value, self.device());
  arguments[plan.value] = at::scalar_tensor(value.item(), value.scalar_type());
}

inline void take(const c10::OperatorHandle& op, const Plan& plan, IValue* arguments) {
  if (plan.takes == Plan::CHOSEN) move_for_choice(op, arguments);
  else if (plan.takes == Plan::ASSIGNED) move_for_assignment(op, plan, arguments);
  else read(op, plan, arguments);
}

// Whether nothing is on a virtual GPU any more: the CPU computes the operation.
inline bool is_on_cpu(const Plan& plan, const IValue* arguments) {
  auto is_virtual = [](const IValue& v) {
    auto* t = tensor_in(v);
    return t && t->device().type() == TYPE;
  };
  return std::none_of(arguments, arguments + plan.arguments, [&](const IValue& v) {
    if (!v.isList()) return is_virtual(v);
    const auto& list = v.toListRef();
    return std::any_of(list.begin(), list.end(), is_virtual);
  });
}
}  // namespace xdevice::taken
