// Virtual GPUs for PaddlePaddle: a custom device whose memory is the host's.
//
// The plug-in is linked with no symbols of PaddlePaddle; it defines four, in replaced.h and lent.h, that are found before
// PaddlePaddle's own, since it is loaded first. The number of devices is read from the environment when PaddlePaddle
// loads it. XDEVICE_BARE leaves out what needs the C++ library that PaddlePaddle was built with, GNU's.

#include "device.h"
#ifdef XDEVICE_BARE
#include "copied.h"
#else
#include "lent.h"
#endif

extern "C" void WatchCopies(Watch see) { __atomic_store_n(&watch, see, __ATOMIC_RELAXED); }

extern "C" void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  device_count = Asked("XDEVICE_PADDLE_VIRTUAL_GPUS");
  if (device_count > kMost) device_count = kMost;
  limit = Asked("XDEVICE_PADDLE_VIRTUAL_MEMORY");
  params->device_type = const_cast<char*>("vgpu");
  params->sub_device_type = const_cast<char*>("xdevice");
  C_DeviceInterface* table = params->interface;
  memset(reinterpret_cast<char*>(table) + sizeof(size_t), 0, table->size - sizeof(size_t));
  FillTable(table);
  xdevice::Register(__builtin_return_address(0));
}
