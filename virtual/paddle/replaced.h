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
#define TRANS_DATA_PLACE "_ZN6paddle12experimental14TransDataPlaceERKN3phi11DenseTensorENS1_5PlaceE"
#define TRANS_DATA_BACKEND "_ZN6paddle12experimental16TransDataBackendEPKN3phi11DenseTensorENS0_7BackendEPS2_"

namespace xdevice {

using phi::AllocationType;
using Tensor = phi::DenseTensor;
using Holder = std::shared_ptr<phi::Allocation>;

// PaddlePaddle's functions that are called, with which the plug-in is not linked. The first two are replaced, too.
Tensor (*trans_data_place)(const Tensor&, phi::Place);
void (*trans_data_backend)(const Tensor*, phi::Backend, Tensor*);
phi::Place (*place_of)(const phi::Backend&, bool);
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
      {TRANS_DATA_PLACE, &trans_data_place},
      {TRANS_DATA_BACKEND, &trans_data_backend},
      {"_ZN3phi15TransToPhiPlaceERKN6paddle12experimental7BackendEb", &place_of},
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

// A DenseTensor as a function returns it. The caller destroys it, so PaddlePaddle's destructor is not needed here.
struct Returned {
  Returned(const Tensor& tensor, const Holder& holder) {
    construct_copy(reinterpret_cast<Tensor*>(bytes), &tensor);
    hold(reinterpret_cast<Tensor*>(bytes), holder);
  }
  Returned(const Returned&) = delete;
  ~Returned() {}
  alignas(Tensor) unsigned char bytes[sizeof(Tensor)];
};

Returned TransDataPlace(const Tensor&, phi::Place) __asm__(TRANS_DATA_PLACE);

Returned TransDataPlace(const Tensor& tensor, phi::Place place) {
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
