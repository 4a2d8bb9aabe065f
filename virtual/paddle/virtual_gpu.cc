// Virtual GPUs for PaddlePaddle: a custom device whose memory is the host's.
//
// The plug-in is not linked with PaddlePaddle. It defines functions of PaddlePaddle, in replaced.h, with_copies.h
// and without_copies.h, which replace PaddlePaddle's own because the plug-in is loaded first. PaddlePaddle then
// loads it as a device, and it reads the number of devices from the environment. XDEVICE_BARE leaves out the parts
// that need GNU's C++ library, with which PaddlePaddle was built.

#include "device.h"
#include "random.h"
#ifdef XDEVICE_BARE
#include "with_copies.h"
#else
#include "without_copies.h"
#endif

extern "C" void ObserveCopies(Observer value) { __atomic_store_n(&observer, value, __ATOMIC_RELAXED); }

// From now on, write the most bytes of each device into the array, and free cached memory before
// the limit is exceeded. A null pointer ends this.
extern "C" void MeasureMemory(size_t limit, int64_t* most) {
  soft_limit = most ? limit : SIZE_MAX;
  for (size_t i = 0; most && i < device_count; ++i) {
    most[i] = __atomic_load_n(&used[i], __ATOMIC_RELAXED);
  }
  most_used = most;
}

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
  xdevice::Register(__builtin_return_address(0));
}
