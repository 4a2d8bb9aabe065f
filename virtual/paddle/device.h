// A virtual GPU, as a table of functions for PaddlePaddle's C interface for devices (device_ext.h, in its wheel).
//
// It is synchronous, so streams and events do nothing, and its memory is the host's. PaddlePaddle itself counts the
// allocated memory. No C++ library is used.

#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "paddle/phi/backends/device_ext.h"

namespace {

constexpr size_t kMost = 64;
constexpr size_t kAlignment = 256;  // PaddlePaddle's for GPUs: a block's size is a multiple of it
size_t device_count = 0;
size_t limit = 0;  // bytes of each device; 0 for none
size_t used[kMost];  // changed by several threads
thread_local int current_device = 0;
char handle_target = 0;  // all handles of streams and events point to it

size_t NumberFromEnvironment(const char* name) {
  const char* text = getenv(name);
  return text ? strtoull(text, nullptr, 10) : 0;
}

bool Exists(const C_Device device) { return device->id >= 0 && static_cast<size_t>(device->id) < device_count; }

// For functions that have nothing to do, since all work is complete when its call returns.
template <class... Arguments>
C_Status Succeed(Arguments...) { return C_SUCCESS; }

C_Status Check(const C_Device device) { return Exists(device) ? C_SUCCESS : C_ERROR; }

C_Status SetDevice(const C_Device device) {
  if (Exists(device)) current_device = device->id;
  return Check(device);
}

template <class Handle>
C_Status Create(const C_Device, Handle* handle) {
  *handle = reinterpret_cast<Handle>(&handle_target);
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

// Add to the used bytes of the device, and return the sum.
size_t AddUsed(const C_Device device, size_t bytes) {
  return __atomic_add_fetch(&used[device->id], bytes, __ATOMIC_RELAXED);
}

C_Status Allocate(const C_Device device, void** address, size_t size) {
  if (!Exists(device)) return C_ERROR;
  const bool may_use = AddUsed(device, size) <= (limit ? limit : SIZE_MAX);
  if (may_use && AllocateHost(device, address, size) == C_SUCCESS) return C_SUCCESS;
  AddUsed(device, -size);
  *address = nullptr;  // PaddlePaddle then frees cached memory and tries again, or raises its own error
  return C_SUCCESS;
}

C_Status Free(const C_Device device, void* address, size_t size) {
  AddUsed(device, -size);
  return FreeHost(device, address, size);
}

// A function of Python that is called before each copy. It returns 0 to forbid the copy. The number of the host is -1.
using Observer = int (*)(int source, int target, size_t size, const void* from);

Observer observer = nullptr;  // set by another thread than those that copy
thread_local int unobserved = 0;  // positive during copies that a GPU would not make

// Whether this process has used the devices, and whether it was forked from one that had: CUDA cannot be used there. The
// CPU's kernels compute, so that each operation on a device ends with a copy, which is refused.
bool is_used = false;
bool is_forked = false;

C_Status RefuseInFork() {
  static bool is_said = false;
  if (!is_said)
    fputs("CUDA error(3), initialization error: a forked process cannot use the GPUs that its parent has used; start it "
          "with spawn\n", stderr);
  is_said = true;
  return C_ERROR;
}

C_Status ObservedCopy(int source, int target, void* to, const void* from, size_t size) {
  if (is_forked) return RefuseInFork();
  __atomic_store_n(&is_used, true, __ATOMIC_RELAXED);
  const Observer observe = __atomic_load_n(&observer, __ATOMIC_RELAXED);
  if (observe && !unobserved && !observe(source, target, size, from)) return C_FAILED;
  memmove(to, from, size);
  return C_SUCCESS;
}

// Copies on, to, from and between devices, with or without a stream: all memory is the host's.
template <class... Stream>
struct Copies {
  static C_Status OnDevice(const C_Device, Stream..., void* to, const void* from, size_t size) {
    return memmove(to, from, size), C_SUCCESS;
  }
  static C_Status ToDevice(const C_Device device, Stream..., void* to, const void* from, size_t size) {
    return ObservedCopy(-1, device->id, to, from, size);
  }
  static C_Status ToHost(const C_Device device, Stream..., void* to, const void* from, size_t size) {
    return ObservedCopy(device->id, -1, to, from, size);
  }
  static C_Status BetweenDevices(const C_Device target, const C_Device source, Stream..., void* to, const void* from,
                                 size_t size) {
    return ObservedCopy(source->id, target->id, to, from, size);
  }
};

C_Status MemoryStats(const C_Device device, size_t* total, size_t* free) {
  *total = limit ? limit : size_t{1} << 40;  // nominal, for PaddlePaddle's planning: the host's memory is the limit
  *free = *total - (limit ? AddUsed(device, 0) : 0);
  return C_SUCCESS;
}

// Constant results. PaddlePaddle 3.0 passes no device when it reads versions.
template <auto value, class Result>
C_Status Constant(Result* result) { return *result = value, C_SUCCESS; }

template <auto value, class Result>
C_Status Constant(const C_Device, Result* result) { return Constant<value>(result); }

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
  table->memory_copy_h2d = Copies<>::ToDevice;
  table->memory_copy_d2h = Copies<>::ToHost;
  table->memory_copy_d2d = Copies<>::OnDevice;
  table->memory_copy_p2p = Copies<>::BetweenDevices;
  table->async_memory_copy_h2d = Copies<C_Stream>::ToDevice;
  table->async_memory_copy_d2h = Copies<C_Stream>::ToHost;
  table->async_memory_copy_d2d = Copies<C_Stream>::OnDevice;
  table->async_memory_copy_p2p = Copies<C_Stream>::BetweenDevices;
  table->device_memory_stats = MemoryStats;
  table->device_min_chunk_size = Constant<kAlignment>;
  table->device_extra_padding_size = Constant<size_t{0}>;
  table->get_compute_capability = Constant<size_t{0}>;
  table->get_runtime_version = Constant<size_t{0}>;
  table->get_driver_version = Constant<size_t{0}>;
}

}  // namespace
