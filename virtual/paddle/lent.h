// Where a virtual GPU has no kernel, PaddlePaddle copies what a kernel of the CPU reads, and copies what it has written
// back. What it reads is in the host's memory already: the kernel is given that, and writes to memory of its own.

#pragma once

#include <memory>
#include <utility>

#include "half_kernels.h"
#include "paddle/phi/backends/callback_manager.h"
#include "replaced.h"

namespace xdevice {

static_assert(sizeof(CallbackManager) == sizeof(phi::CallbackManager), "it is made in the place of one");
static_assert(sizeof(Function) == sizeof(std::function<void()>), "it is what is called");

using half::Holder;
using half::Tensor;

struct Borrowed : phi::Allocation {
  Borrowed(Holder lender, const phi::Place& place)
      : phi::Allocation(lender->ptr(), lender->size(), place), lender_(std::move(lender)) {}
  Holder lender_;  // kept alive
};

using Copied = void (*)(Tensor*, const Tensor*);  // the copy constructor

// A DenseTensor as a function returns it: whoever calls destroys it, so that nothing here needs PaddlePaddle's.
struct Returned {
  Returned(const Tensor& tensor, const Holder& holder, Copied copied) {
    copied(reinterpret_cast<Tensor*>(bytes), &tensor);
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
  static const auto copied = FunctionNear<Copied>(caller, "_ZN3phi11DenseTensorC1ERKS0_");
  const bool reads = place.GetType() == phi::AllocationType::CPU && tensor.Holder() &&
                     tensor.Holder()->place().GetType() == phi::AllocationType::CUSTOM;
  if (!reads || !copied || !half::hold) {  // what the CPU's kernel has written
    const Unwatched now;
    return move(tensor, place);
  }
  return Returned(tensor, std::make_shared<Borrowed>(tensor.Holder(), place), copied);
}

void TransDataBackend(const Tensor*, phi::Backend, Tensor*) __asm__(TRANS_DATA_BACKEND);

// PaddlePaddle 3.0 to 3.3.1 leaves an empty result of a CPU kernel on the CPU, since nothing has to be copied back.
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

// Give the CPU kernels for 16-bit floats.
void Register(const void* caller) {
  const auto factory = FunctionNear<phi::KernelFactory& (*)()>(caller, "_ZN3phi13KernelFactory8InstanceEv");
  const auto customs = FunctionNear<phi::CustomKernelMap& (*)()>(caller, "_ZN3phi15CustomKernelMap8InstanceEv");
  const auto add = FunctionNear<half::Registered>(
      caller, "_ZN3phi15CustomKernelMap20RegisterCustomKernelERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS"
              "_9KernelKeyERKNS_6KernelE");
  half::set_type = FunctionNear<decltype(half::set_type)>(caller, "_ZN3phi11DenseTensor8set_typeENS_8DataTypeE");
  half::hold = FunctionNear<decltype(half::hold)>(
      caller, "_ZN3phi11DenseTensor11ResetHolderERKSt10shared_ptrINS_10AllocationEE");
  if (factory && customs && add && half::set_type && half::hold) half::Register(&factory(), &customs(), add);
}

}  // namespace xdevice
