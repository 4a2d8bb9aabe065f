// A virtual GPU as PaddlePaddle's C interface for devices (device_ext.h, in its wheel) asks for it: a table of functions.
//
// It is synchronous, so streams and events do nothing, and its memory is the host's. PaddlePaddle itself counts what is
// allocated. Nothing of a C++ library is used.

#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "paddle/phi/backends/device_ext.h"

namespace {

constexpr size_t kMost = 64;
constexpr size_t kAlignment = 64;  // of a cache line, as the CPU's kernels expect
size_t device_count = 0;
size_t limit = 0;  // bytes of each device; 0 for none
size_t used[kMost];  // changed by several threads
thread_local int current_device = 0;
char nothing = 0;  // the target of all streams and events

size_t Asked(const char* name) {
  const char* text = getenv(name);
  return text ? strtoull(text, nullptr, 10) : 0;
}

bool Exists(const C_Device device) { return device->id >= 0 && static_cast<size_t>(device->id) < device_count; }

// What has nothing to do: all work is done when it is asked for.
template <class... Arguments>
C_Status Succeed(Arguments...) { return C_SUCCESS; }

C_Status Check(const C_Device device) { return Exists(device) ? C_SUCCESS : C_ERROR; }

C_Status SetDevice(const C_Device device) {
  if (Exists(device)) current_device = device->id;
  return Check(device);
}

template <class Handle>
C_Status Create(const C_Device, Handle* handle) {
  *handle = reinterpret_cast<Handle>(&nothing);
  return C_SUCCESS;
}

C_Status AddCallback(const C_Device device, C_Stream stream, C_Callback callback, void* data) {
  C_Status status = C_SUCCESS;
  callback(device, stream, data, &status);
  return status;
}

C_Status AllocateHost(const C_Device, void** address, size_t size) {
  *address = aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  return *address ? C_SUCCESS : C_FAILED;
}

C_Status FreeHost(const C_Device, void* address, size_t) { return free(address), C_SUCCESS; }

// The bytes of the device that are used, these among them.
size_t Add(const C_Device device, size_t bytes) {
  return __atomic_add_fetch(&used[device->id], bytes, __ATOMIC_RELAXED);
}

C_Status Allocate(const C_Device device, void** address, size_t size) {
  if (!Exists(device)) return C_ERROR;
  const bool fits = Add(device, size) <= (limit ? limit : SIZE_MAX);
  if (fits && AllocateHost(device, address, size) == C_SUCCESS) return C_SUCCESS;
  Add(device, -size);
  *address = nullptr;  // PaddlePaddle then frees what it keeps and tries again, or raises its own error
  return C_SUCCESS;
}

C_Status Free(const C_Device device, void* address, size_t size) {
  Add(device, -size);
  return FreeHost(device, address, size);
}

// Python may watch copies: it answers with 0 for one that is not to be made.
using Watch = int (*)(int source, int target, size_t size, const void* from);  // -1 is the host

Watch watch = nullptr;  // set by another thread than those that copy
thread_local int unwatched = 0;  // copies that no GPU would make

C_Status Watched(int source, int target, void* to, const void* from, size_t size) {
  const Watch see = __atomic_load_n(&watch, __ATOMIC_RELAXED);
  if (see && !unwatched && !see(source, target, size, from)) return C_FAILED;
  memmove(to, from, size);
  return C_SUCCESS;
}

// On, to, from or between devices, and on a stream or not: all memory is the host's.
template <class... Stream>
struct In {
  static C_Status Copy(const C_Device, Stream..., void* to, const void* from, size_t size) {
    return memmove(to, from, size), C_SUCCESS;
  }
  static C_Status Send(const C_Device device, Stream..., void* to, const void* from, size_t size) {
    return Watched(-1, device->id, to, from, size);
  }
  static C_Status Fetch(const C_Device device, Stream..., void* to, const void* from, size_t size) {
    return Watched(device->id, -1, to, from, size);
  }
  static C_Status Cross(const C_Device target, const C_Device source, Stream..., void* to, const void* from,
                        size_t size) {
    return Watched(source->id, target->id, to, from, size);
  }
};

C_Status MemoryStats(const C_Device device, size_t* total, size_t* free) {
  *total = limit ? limit : size_t{1} << 40;  // nominal, for PaddlePaddle's planning: the host's memory is the limit
  *free = *total - (limit ? Add(device, 0) : 0);
  return C_SUCCESS;
}

// Answers that are always the same; PaddlePaddle 3.0 asks for versions without a device.
template <auto value, class Answer>
C_Status Say(Answer* answer) { return *answer = value, C_SUCCESS; }

template <auto value, class Answer>
C_Status Say(const C_Device, Answer* answer) { return Say<value>(answer); }

// PaddlePaddle 3.0 does not ask whether there are 16-bit floats; the second is taken there.
template <class Table>
auto AllowHalves(Table* table, int) -> decltype(table->is_bfloat16_supported, void()) {
  table->is_float16_supported = table->is_bfloat16_supported = Say<true>;
}

template <class Table>
void AllowHalves(Table*, long) {}

void FillTable(C_DeviceInterface* table) {
  table->initialize = table->finalize = Succeed;
  table->init_device = table->deinit_device = table->synchronize_device = Check;
  table->set_device = SetDevice;
  table->get_device = [](const C_Device device) { return device->id = current_device, C_SUCCESS; };
  table->get_device_count = [](size_t* count) { return *count = device_count, C_SUCCESS; };
  table->get_device_list = [](size_t* devices) {
    for (size_t i = 0; i < device_count; ++i) devices[i] = i;
    return C_SUCCESS;
  };
  table->create_stream = Create;
  table->create_event = Create;
  table->destroy_stream = table->query_stream = table->synchronize_stream = Succeed;
  table->destroy_event = table->query_event = table->synchronize_event = Succeed;
  table->record_event = table->stream_wait_event = Succeed;
  table->stream_add_callback = AddCallback;
  table->device_memory_allocate = Allocate;
  table->device_memory_deallocate = Free;
  table->device_memory_set = [](const C_Device, void* address, unsigned char value, size_t size) {
    return memset(address, value, size), C_SUCCESS;
  };
  table->host_memory_allocate = AllocateHost;
  table->host_memory_deallocate = FreeHost;
  table->memory_copy_h2d = In<>::Send;
  table->memory_copy_d2h = In<>::Fetch;
  table->memory_copy_d2d = In<>::Copy;
  table->memory_copy_p2p = In<>::Cross;
  table->async_memory_copy_h2d = In<C_Stream>::Send;
  table->async_memory_copy_d2h = In<C_Stream>::Fetch;
  table->async_memory_copy_d2d = In<C_Stream>::Copy;
  table->async_memory_copy_p2p = In<C_Stream>::Cross;
  table->device_memory_stats = MemoryStats;
  table->device_min_chunk_size = Say<kAlignment>;
  table->device_extra_padding_size = Say<size_t{0}>;
  table->get_compute_capability = Say<size_t{0}>;
  table->get_runtime_version = Say<size_t{0}>;
  table->get_driver_version = Say<size_t{0}>;
  AllowHalves(table, 0);
}

}  // namespace
