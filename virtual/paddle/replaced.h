// Functions of PaddlePaddle's C++ that the plug-in replaces under the versions that were tried (`TRIED` in
// __init__.py): it is loaded first, so the dynamic linker finds its symbols first. Under other versions this file is not
// compiled, and PaddlePaddle's own functions are slower. A plug-in refuses a build that lacks one of the symbols.

#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <memory>
#include <utility>

#include "device.h"
#include "paddle/phi/backends/callback_manager.h"
#include "paddle/phi/core/dense_tensor.h"

#define BEGIN "_ZN3phi15CallbackManagerC1EPNS_6stream6StreamE"
#define ADD_CALLBACK "_ZNK3phi15CallbackManager11AddCallbackESt8functionIFvvEE"
#define WAIT "_ZNK3phi15CallbackManager4WaitEv"
#define CHECK_PLACE "_ZN3phi11distributed15CommStaticCheck10CheckPlaceERKNS_11DenseTensorENS_14AllocationTypeE"
#define GET_BACKENDS "_ZN6paddle12experimental6detail19GetTensorBackendSetERKN3phi10TensorBaseE"
#define PARSE_BACKEND "_ZN6paddle12experimental12ParseBackendERKN3phi5PlaceE"
#define TRANS_DATA_PLACE "_ZN6paddle12experimental14TransDataPlaceERKN3phi11DenseTensorENS1_5PlaceE"
#define TRANS_DATA_BACKEND "_ZN6paddle12experimental16TransDataBackendEPKN3phi11DenseTensorENS0_7BackendEPS2_"

namespace xdevice {

using phi::AllocationType;
using Tensor = phi::DenseTensor;
using Holder = std::shared_ptr<phi::Allocation>;

// PaddlePaddle's functions that are called, with which the plug-in is not linked. The first four are replaced, too.
uint64_t (*get_backends)(const phi::TensorBase&);
phi::Backend (*parse_backend)(const phi::Place&);
Tensor (*trans_data_place)(const Tensor&, phi::Place);
void (*trans_data_backend)(const Tensor*, phi::Backend, Tensor*);
phi::Place (*place_of)(const phi::Backend&, bool);
void (*construct_place)(phi::Place*, AllocationType, const std::string&);
void (*construct_copy)(Tensor*, const Tensor*);
void (*hold)(Tensor*, const Holder&);

// The function with this symbol in the library that contains the address, or in those that it is linked with.
void* FunctionNear(const void* address, const char* symbol) {
  Dl_info library;
  if (!dladdr(address, &library)) return nullptr;
  void* handle = dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return handle ? dlsym(handle, symbol) : nullptr;
}

// Find the functions that are replaced or called in PaddlePaddle's library, which contains the address. The symbol of
// the first that it lacks is returned; null if it has all of them.
const char* FindFunctions(const void* address) {
  void* unused;
  const struct {
    const char* symbol;
    void* function;
  } functions[] = {
      {BEGIN, &unused},
      {ADD_CALLBACK, &unused},
      {WAIT, &unused},
      {CHECK_PLACE, &unused},
      {GET_BACKENDS, &get_backends},
      {PARSE_BACKEND, &parse_backend},
      {TRANS_DATA_PLACE, &trans_data_place},
      {TRANS_DATA_BACKEND, &trans_data_backend},
      {"_ZN3phi15TransToPhiPlaceERKN6paddle12experimental7BackendEb", &place_of},
      {"_ZN3phi5PlaceC1ENS_14AllocationTypeERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", &construct_place},
      {"_ZN3phi11DenseTensorC1ERKS0_", &construct_copy},
      {"_ZN3phi11DenseTensor11ResetHolderERKSt10shared_ptrINS_10AllocationEE", &hold},
  };
  for (const auto& [symbol, function] : functions)
    if (!(*static_cast<void**>(function) = FunctionNear(address, symbol))) return symbol;
  return nullptr;
}

// PaddlePaddle creates a stream for each copy to, from or on a device. Each stream has a thread pool, which starts a
// thread and joins it: nine tenths of the time of a small operation. Here a callback runs immediately.
struct CallbackManager {
  void* stream;
  void* pool[2];
  pthread_mutex_t mutex;
  void* last[2];
};

static_assert(sizeof(CallbackManager) == sizeof(phi::CallbackManager), "it is constructed in the memory of one");

void Begin(CallbackManager*, void* stream) __asm__(BEGIN);
void AddCallback(const CallbackManager*, std::function<void()>) __asm__(ADD_CALLBACK);
void Wait(const CallbackManager*) __asm__(WAIT);

void Begin(CallbackManager* manager, void* stream) { *manager = {stream, {}, PTHREAD_MUTEX_INITIALIZER, {}}; }
void AddCallback(const CallbackManager*, std::function<void()> callback) { callback(); }
void Wait(const CallbackManager*) {}

// Gloo's process group refuses tensors that are not on the CPU. A virtual GPU's memory is the host's.
void CheckPlace(const void* tensor, int8_t type) __asm__(CHECK_PLACE);

void CheckPlace(const void*, int8_t) {}

// For an operation without a kernel for virtual GPUs, PaddlePaddle copies the inputs to the CPU, runs the CPU's
// kernel, and copies the results back. The inputs are in the host's memory already, so here the kernel reads that
// memory. It writes its results to new memory, which is copied.
struct SharedAllocation : phi::Allocation {
  SharedAllocation(Holder owner, const phi::Place& place)
      : phi::Allocation(owner->ptr(), owner->size(), place), owner_(std::move(owner)) {}
  Holder owner_;  // keeps the memory alive
};

// A DenseTensor as a function returns it. The caller destroys it.
struct Returned {
  Returned(const Tensor& tensor, const Holder& holder) {
    construct_copy(reinterpret_cast<Tensor*>(bytes), &tensor);
    hold(reinterpret_cast<Tensor*>(bytes), holder);
  }
  Returned(const Returned&) = delete;
  ~Returned() {}
  const Tensor& Get() const { return reinterpret_cast<const Tensor&>(bytes); }
  void Destroy() { reinterpret_cast<phi::TensorBase*>(bytes)->~TensorBase(); }
  alignas(Tensor) unsigned char bytes[sizeof(Tensor)];
};

Returned TransDataPlace(const Tensor&, phi::Place) __asm__(TRANS_DATA_PLACE);

phi::Place MakePlace(AllocationType type, const char* device_type) {
  phi::Place place;
  construct_place(&place, type, device_type);
  if (type == AllocationType::CUSTOM) place.device = static_cast<int8_t>(current_device);
  return place;
}

phi::Place CurrentGpu() { return MakePlace(AllocationType::CUSTOM, "vgpu"); }

bool IsPageLocked(const phi::Place& place) { return place.GetType() == AllocationType::GPUPINNED; }

// The tensor's page-locked memory becomes the current GPU's: it is the host's in any case. The copy to a GPU is made for
// those who watch or forbid it.
void MoveToGpu(const Tensor& tensor) {
  struct Moved : phi::Allocation {
    static void SetPlace(phi::Allocation* memory, const phi::Place& place) {
      static_cast<Moved*>(memory)->place_ = place;
    }
  };
  const auto copy = reinterpret_cast<decltype(&TransDataPlace)>(trans_data_place);
  Returned host(tensor, std::make_shared<SharedAllocation>(tensor.Holder(), MakePlace(AllocationType::CPU, "")));
  Returned unused = copy(host.Get(), CurrentGpu());
  unused.Destroy();
  host.Destroy();
  Moved::SetPlace(tensor.Holder().get(), CurrentGpu());
}

// The kernels that an operation may use, by the place of an operand: a number with a bit for each backend. One in
// page-locked memory lets PaddlePaddle choose a GPU's kernel and move the operand to the current GPU, where it stays
// (data_transform.cc).
uint64_t GetBackends(const phi::TensorBase&) __asm__(GET_BACKENDS);

uint64_t GetBackends(const phi::TensorBase& tensor) {
  constexpr uint64_t kPageLocked = 1ull << (static_cast<int>(phi::Backend::GPU) - 1);
  const uint64_t backends = get_backends(tensor);
  if (!(backends & kPageLocked)) return backends;
  MoveToGpu(static_cast<const Tensor&>(tensor));
  return get_backends(tensor);
}

// The same for a result that is made where another tensor is.
phi::Backend ParseBackend(const phi::Place&) __asm__(PARSE_BACKEND);

phi::Backend ParseBackend(const phi::Place& place) { return parse_backend(IsPageLocked(place) ? CurrentGpu() : place); }

Returned TransDataPlace(const Tensor& tensor, phi::Place place) {
  // an operand that is not the first of a list
  if (tensor.Holder() && IsPageLocked(tensor.Holder()->place())) MoveToGpu(tensor);
  const bool is_input = place.GetType() == AllocationType::CPU && tensor.Holder() &&
                        tensor.Holder()->place().GetType() == AllocationType::CUSTOM;
  if (is_input) return Returned(tensor, std::make_shared<SharedAllocation>(tensor.Holder(), place));
  // A result of the CPU's kernel: a GPU would not copy it, so the copy is not observed.
  struct Unobserved {
    Unobserved() { ++unobserved; }
    ~Unobserved() { --unobserved; }
  };
  const Unobserved guard;
  return reinterpret_cast<decltype(&TransDataPlace)>(trans_data_place)(tensor, place);
}

void TransDataBackend(const Tensor*, phi::Backend, Tensor*) __asm__(TRANS_DATA_BACKEND);

// PaddlePaddle leaves an empty result of a CPU kernel on the CPU, since it has no values to copy back.
void TransDataBackend(const Tensor* tensor, phi::Backend backend, Tensor* out) {
  const bool is_empty = tensor && tensor->Holder() && tensor->numel() == 0;
  const phi::Place place = place_of(backend, true);
  if (!is_empty || place.GetType() != AllocationType::CUSTOM) return trans_data_backend(tensor, backend, out);
  hold(out, std::make_shared<phi::Allocation>(nullptr, 0, place));
}

}  // namespace xdevice
