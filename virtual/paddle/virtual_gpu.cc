// Virtual GPUs for PaddlePaddle: a custom device whose memory is the host's.
//
// The plug-in uses PaddlePaddle's C interface for devices, and is not linked with PaddlePaddle, which loads it as a
// device. It reads the number of devices from the environment.

#include <pthread.h>

#include "device.h"
#ifdef XDEVICE_REPLACES
#include "replaced.h"
#endif

namespace {

const char* missing_symbol = nullptr;

}  // namespace

extern "C" void ObserveCopies(Observer value) { __atomic_store_n(&observer, value, __ATOMIC_RELAXED); }

// The symbol of a function that the plug-in replaces and PaddlePaddle's library lacks; null if it has all of them.
extern "C" const char* MissingSymbol() { return missing_symbol; }

extern "C" void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  device_count = NumberFromEnvironment("XDEVICE_PADDLE_VIRTUAL_GPUS");
  if (device_count > kMost) device_count = kMost;
  limit = NumberFromEnvironment("XDEVICE_PADDLE_VIRTUAL_MEMORY");
  params->device_type = const_cast<char*>("vgpu");
  params->sub_device_type = const_cast<char*>("xdevice");
  C_DeviceInterface* table = params->interface;
  memset(reinterpret_cast<char*>(table) + sizeof(size_t), 0, table->size - sizeof(size_t));
  FillTable(table);
  pthread_atfork(nullptr, nullptr, [] { is_forked |= is_used; });
#ifdef XDEVICE_REPLACES
  missing_symbol = xdevice::FindFunctions(__builtin_return_address(0));
#endif
}
