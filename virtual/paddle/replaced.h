// Functions of PaddlePaddle's C++ that the plug-in replaces: it is loaded first, so the dynamic linker finds its
// symbols first.
//
// The classes below have the layout of GNU's C++ library, which has not changed since GCC 5. No C++ library is used.

#pragma once

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

#include "device.h"

namespace xdevice {

// PaddlePaddle 3.0 to 3.3.1 creates a stream for each copy to, from or on a device. Each stream has a thread pool,
// which starts a thread and joins it: nine tenths of the time of a small operation. Here a callback runs
// immediately.
struct Function {  // std::function
  void* bound[2];
  void* manage;
  void (*call)(const void* bound);
};

struct CallbackManager {
  void* stream;
  void* pool[2];
  pthread_mutex_t mutex;
  void* last[2];
};

void Begin(CallbackManager*, void* stream) __asm__("_ZN3phi15CallbackManagerC1EPNS_6stream6StreamE");
void AddCallback(const CallbackManager*, Function*) __asm__("_ZNK3phi15CallbackManager11AddCallbackESt8functionIFvvEE");
void Wait(const CallbackManager*) __asm__("_ZNK3phi15CallbackManager4WaitEv");

void Begin(CallbackManager* manager, void* stream) { *manager = {stream, {}, PTHREAD_MUTEX_INITIALIZER, {}}; }
void AddCallback(const CallbackManager*, Function* callback) { callback->call(callback->bound); }
void Wait(const CallbackManager*) {}

// Gloo's process group refuses tensors that are not on the CPU. A virtual GPU's memory is the host's.
void CheckPlace(const void* tensor, int8_t type)
    __asm__("_ZN3phi11distributed15CommStaticCheck10CheckPlaceERKNS_11DenseTensorENS_14AllocationTypeE");

void CheckPlace(const void*, int8_t) {}

// The function with this symbol in the library that contains the address.
template <class Function>
Function FunctionNear(const void* address, const char* symbol) {
  Dl_info library;
  if (!dladdr(address, &library)) return nullptr;
  void* handle = dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return handle ? reinterpret_cast<Function>(dlsym(handle, symbol)) : nullptr;
}

#define TRANS_DATA_PLACE "_ZN6paddle12experimental14TransDataPlaceERKN3phi11DenseTensorENS1_5PlaceE"
#define TRANS_DATA_BACKEND "_ZN6paddle12experimental16TransDataBackendEPKN3phi11DenseTensorENS0_7BackendEPS2_"

// While it lives, copies are not observed: PaddlePaddle copies between a virtual GPU and the CPU for operations
// without a kernel, and a GPU would not.
struct Unobserved {
  Unobserved() { ++unobserved; }
  ~Unobserved() { --unobserved; }
};

}  // namespace xdevice
