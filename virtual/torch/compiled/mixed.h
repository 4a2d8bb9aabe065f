// Errors about devices that are mixed in one operation: CUDA's, or in a strict block Python's.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>

#include <map>

#include "async_copies.h"

namespace xdevice {

// In a strict block, Python's error.
inline void raise_strict(const std::string& operation, Device a, Device b) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow("xdevice_virtual::mixed", "");
  torch::jit::Stack stack{operation, a, b};
  op.callBoxed(&stack);
}

// Raises the error of CUDA's kernels that compare the devices of all operands; also that of vgpu.
[[noreturn]] inline void raise_different_devices(const std::string& operation, Device a, Device b) {
  if (std::make_pair(a.is_cpu(), a.index()) > std::make_pair(b.is_cpu(), b.index())) std::swap(a, b);
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b, "!",
      TYPE == c10::DeviceType::CUDA ? "" : " (when checking " + operation + ")");
}

// The function at the beginning of CUDA's kernel for a dispatch key that checks the devices, from a table in Python;
// empty if there is none.
inline const std::string& method_of(const c10::OperatorHandle& op, const std::string& key) {
  using Operation = std::pair<const c10::FunctionSchema*, std::string>;
  static thread_local std::map<Operation, std::string> methods;  // of operations that stay
  static const std::string none;
  if (TYPE != c10::DeviceType::CUDA || op.schema().name().compare(0, 6, "aten::")) return none;
  Operation operation{&op.schema(), key};
  auto cached = methods.find(operation);
  if (cached != methods.end()) return cached->second;
  torch::jit::Stack stack{toString(op.operator_name()), key};
  call_python("method", stack);
  return methods.emplace(operation, stack[0].toStringRef()).first->second;
}

// The check that torchgen writes: first the tensors that are written to, then the others, without keyword-only
// arguments.
template <class TensorOfProgram>
struct DeviceCheck {
  const c10::OperatorHandle& op;
  const std::string& method;
  TensorOfProgram tensor_of_program;  // returns the program's tensor for an alias; an undefined one for other tensors
  std::optional<Device> common = {};

  void check(const IValue& v, const std::string& name) {
    auto check_tensor = [&](const Tensor& t) {
      Tensor original = tensor_of_program(t);
      c10::impl::check_and_update_common_device(
          common, original.defined() ? original : t, method.c_str(), name.c_str());
    };
    if (v.isTensor()) check_tensor(v.toTensor());
    else if (v.isTensorList()) for (const Tensor& t : v.toTensorVector()) check_tensor(t);
  }

  void run(const IValue* arguments) {
    const auto& names = op.schema().arguments();
    for (bool out : {true, false})
      for (size_t i = 0; i < names.size(); ++i)
        if (names[i].is_out() == out && (out || !names[i].kwarg_only())) check(arguments[i], names[i].name());
  }
};

// Raises the error of cuDNN's convolution if the input and the parameters are on different devices.
inline void check_convolution(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  size_t n = op.schema().arguments().size();
  const IValue* arguments = stack.data() + (stack.size() - n);
  const Tensor& input = arguments[0].toTensor();
  for (int i : {1, 2}) {
    auto* t = tensor_in(arguments[i]);
    if (!t || t->device() == input.device()) continue;
    raise_strict(op.schema().name(), input.device(), t->device());
    if (input.is_cpu()) {  // torch's own check, whose message depends on the CPU's algorithm
      torch::jit::Stack copied_arguments(arguments, arguments + n);
      op.redispatchBoxed(DispatchKeySet(c10::DispatchKey::CPU), &copied_arguments);
    }
    TORCH_CHECK(!t->is_cpu(), "Input type (", input.toString(), ") and ", i == 1 ? "weight" : "bias", " type (",
        t->toString(), ") should be the same");
    if (i == 1) c10::impl::common_device_check_failure(input.device(), *t, "wrapper_CUDA__cudnn_convolution", "weight");
  }
}
}  // namespace xdevice
