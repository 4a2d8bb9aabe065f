// Errors about devices that are mixed in one operation: CUDA's, or in a strict block Python's.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>

#include <unordered_map>

#include "late.h"

namespace xdevice {

// In a strict block, Python's error.
inline void raise_strict(const std::string& operation, Device a, Device b) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow("xdevice_virtual::mixed", "");
  torch::jit::Stack stack{operation, a, b};
  op.callBoxed(&stack);
}

// What CUDA's kernels say that compare the devices of all operands, and what vgpu says.
[[noreturn]] inline void raise_found(const std::string& operation, Device a, Device b) {
  if (std::make_pair(a.is_cpu(), a.index()) > std::make_pair(b.is_cpu(), b.index())) std::swap(a, b);
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b, "!",
      TYPE == c10::DeviceType::CUDA ? "" : " (when checking " + operation + ")");
}

// The function with which CUDA's kernel begins, and which checks the devices; empty where none does. Python knows it.
inline const std::string& method_of(const c10::OperatorHandle& op) {
  static thread_local std::unordered_map<const c10::FunctionSchema*, std::string> methods;  // of operations that stay
  static const std::string none;
  if (TYPE != c10::DeviceType::CUDA || op.schema().name().compare(0, 6, "aten::")) return none;
  auto at = methods.find(&op.schema());
  if (at != methods.end()) return at->second;
  torch::jit::Stack stack{toString(op.operator_name())};
  call_python("method", stack);
  return methods.emplace(&op.schema(), stack[0].toStringRef()).first->second;
}

// As torchgen writes it: the tensors that are written to, then the others, without those given by name alone.
template <class Given>
struct DeviceCheck {
  const c10::OperatorHandle& op;
  const std::string& method;
  Given given;  // the program's tensor, for one in the arguments
  std::optional<Device> common = {};

  void see(const IValue& v, const std::string& name) {
    auto see = [&](const Tensor& t) {
      Tensor own = given(t);
      c10::impl::check_and_update_common_device(common, own.defined() ? own : t, method.c_str(), name.c_str());
    };
    if (v.isTensor()) see(v.toTensor());
    else if (v.isTensorList()) for (const Tensor& t : v.toTensorVector()) see(t);
  }

  void run(const IValue* arguments) {
    const auto& names = op.schema().arguments();
    for (bool out : {true, false})
      for (size_t i = 0; i < names.size(); ++i)
        if (names[i].is_out() == out && (out || !names[i].kwarg_only())) see(arguments[i], names[i].name());
  }
};

// Raises what a convolution by cuDNN says of an input and parameters on several devices.
inline void check_convolution(const c10::OperatorHandle& op, const torch::jit::Stack& given) {
  size_t n = op.schema().arguments().size();
  const IValue* arguments = given.data() + (given.size() - n);
  const Tensor& input = arguments[0].toTensor();
  for (int i : {1, 2}) {
    auto* t = tensor_in(arguments[i]);
    if (!t || t->device() == input.device()) continue;
    raise_strict(op.schema().name(), input.device(), t->device());
    if (input.is_cpu()) {  // torch's own check, whose words depend on what the CPU would choose
      torch::jit::Stack own(arguments, arguments + n);
      op.redispatchBoxed(DispatchKeySet(c10::DispatchKey::CPU), &own);
    }
    TORCH_CHECK(!t->is_cpu(), "Input type (", input.toString(), ") and ", i == 1 ? "weight" : "bias", " type (",
        t->toString(), ") should be the same");
    if (i == 1) c10::impl::common_device_check_failure(input.device(), *t, "wrapper_CUDA__cudnn_convolution", "weight");
  }
}
}  // namespace xdevice
