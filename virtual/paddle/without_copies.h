// For an operation without a kernel for virtual GPUs, PaddlePaddle copies the inputs to the CPU, runs the CPU's
// kernel, and copies the results back. The inputs are in the host's memory already, so here the kernel reads that
// memory. It writes its results to new memory, which is copied.

#pragma once

#include <memory>
#include <utility>

#include "half_kernels.h"
#include "paddle/phi/backends/callback_manager.h"
#include "replaced.h"

namespace xdevice {

static_assert(sizeof(CallbackManager) == sizeof(phi::CallbackManager), "it is constructed in the memory of one");
static_assert(sizeof(Function) == sizeof(std::function<void()>), "it is called as one");

using half::Holder;
using half::Tensor;

struct SharedAllocation : phi::Allocation {
  SharedAllocation(Holder owner, const phi::Place& place)
      : phi::Allocation(owner->ptr(), owner->size(), place), owner_(std::move(owner)) {}
  Holder owner_;  // keeps the memory alive
};

using CopyConstructor = void (*)(Tensor*, const Tensor*);

// A DenseTensor as a function returns it. The caller destroys it, so PaddlePaddle's destructor is not needed here.
struct Returned {
  Returned(const Tensor& tensor, const Holder& holder, CopyConstructor construct_copy) {
    construct_copy(reinterpret_cast<Tensor*>(bytes), &tensor);
    half::hold(reinterpret_cast<Tensor*>(bytes), holder);
  }
  Returned(const Returned&) = delete;
  ~Returned() {}
  alignas(Tensor) unsigned char bytes[sizeof(Tensor)];
};

Returned TransDataPlace(const Tensor&, phi::Place) __asm__(TRANS_DATA_PLACE);

Returned TransDataPlace(const Tensor& tensor, phi::Place place) {
  static const void* caller = __builtin_return_address(0);
  static const auto move = FunctionNear<decltype(&TransDataPlace)>(caller, TRANS_DATA_PLACE);
  static const auto construct_copy = FunctionNear<CopyConstructor>(caller, "_ZN3phi11DenseTensorC1ERKS0_");
  const bool is_input = place.GetType() == phi::AllocationType::CPU && tensor.Holder() &&
                        tensor.Holder()->place().GetType() == phi::AllocationType::CUSTOM;
  if (!is_input || !construct_copy || !half::hold) {  // a result of the CPU's kernel
    const Unobserved guard;
    return move(tensor, place);
  }
  return Returned(tensor, std::make_shared<SharedAllocation>(tensor.Holder(), place), construct_copy);
}

void TransDataBackend(const Tensor*, phi::Backend, Tensor*) __asm__(TRANS_DATA_BACKEND);

// PaddlePaddle 3.0 to 3.3.1 leaves an empty result of a CPU kernel on the CPU, since it has no values to copy back.
void TransDataBackend(const Tensor* tensor, phi::Backend backend, Tensor* out) {
  static const void* caller = __builtin_return_address(0);
  static const auto move = FunctionNear<decltype(&TransDataBackend)>(caller, TRANS_DATA_BACKEND);
  using PlaceOf = phi::Place (*)(const phi::Backend&, bool);
  static const auto place_of = FunctionNear<PlaceOf>(caller, "_ZN3phi15TransToPhiPlaceERKN6paddle12experimental7BackendEb");
  const bool is_empty = tensor && tensor->Holder() && tensor->numel() == 0;
  if (!is_empty || !place_of || !half::hold) return move(tensor, backend, out);
  const phi::Place place = place_of(backend, true);
  if (place.GetType() != phi::AllocationType::CUSTOM) return move(tensor, backend, out);
  half::hold(out, std::make_shared<phi::Allocation>(nullptr, 0, place));
}

// Register kernels for 16-bit floats for the CPU.
void Register(const void* caller) {
  const auto factory = FunctionNear<phi::KernelFactory& (*)()>(caller, "_ZN3phi13KernelFactory8InstanceEv");
  const auto custom_kernels = FunctionNear<phi::CustomKernelMap& (*)()>(caller, "_ZN3phi15CustomKernelMap8InstanceEv");
  const auto add = FunctionNear<half::Registered>(
      caller, "_ZN3phi15CustomKernelMap20RegisterCustomKernelERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS"
              "_9KernelKeyERKNS_6KernelE");
  half::set_type = FunctionNear<decltype(half::set_type)>(caller, "_ZN3phi11DenseTensor8set_typeENS_8DataTypeE");
  half::hold = FunctionNear<decltype(half::hold)>(
      caller, "_ZN3phi11DenseTensor11ResetHolderERKSt10shared_ptrINS_10AllocationEE");
  if (factory && custom_kernels && add && half::set_type && half::hold)
    half::Register(&factory(), &custom_kernels(), add);
}

}  // namespace xdevice
