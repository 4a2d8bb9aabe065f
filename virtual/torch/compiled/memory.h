// The memory of virtual GPUs: the CPU allocator's, under another device label.
//
// The context of a virtual storage's DataPtr holds the CPU storage of the same bytes, so the CPU alias of a
// tensor is one TensorImpl, and both see it when memory grows.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include "accounting.h"
#include "untouched.h"

namespace xdevice {
// The context of a virtual storage's DataPtr.
struct Allocation {
  Storage host;
  DeviceIndex index;
  Block* block;
  bool has_values = true;  // false only while nothing is computed
  Allocation(Storage h, DeviceIndex i, Block* b) : host(std::move(h)), index(i), block(b) {
    if (auto at = uintptr_t(host.data())) trace([&](auto& tracer) { tracer->trace_gpu_memory_allocation(TYPE, at); });
  }
  ~Allocation() {
    free_block(index, block);
    if (auto at = uintptr_t(host.data())) trace([&](auto& tracer) { tracer->trace_gpu_memory_deallocation(TYPE, at); });
  }
};

inline void free_allocation(void* allocation) { delete static_cast<Allocation*>(allocation); }

inline DataPtr label(const Storage& host, DeviceIndex index, Block* block) {
  return DataPtr(host.mutable_data(), new Allocation(host, index, block), &free_allocation, Device(TYPE, index));
}

inline DataPtr label(const Storage& host, DeviceIndex index) {
  return label(host, index, allocate_block(index, host.nbytes()));
}

// Null for memory of another library, by DLPack.
inline Allocation* allocation_of(const c10::StorageImpl* s) {
  return s->data_ptr().cast_context<Allocation>(&free_allocation);
}

// The CPU storage of a virtual storage's bytes.
inline Storage host_of(const Storage& s) {
  if (auto* allocation = allocation_of(s.unsafeGetStorageImpl())) return allocation->host;
  return Storage(Storage::use_byte_size_t(), s.nbytes(), DataPtr(s.mutable_data(), kCPU), c10::GetCPUAllocator(), true);
}

template <class F>
void naming_out_of_memory(F call, DeviceIndex index) {  // the CPU's allocator throws no type of its own
  try {
    call();
  } catch (const c10::Error& error) {
    std::string what = error.what_without_backtrace();
    auto at = what.find("you tried to allocate ");
    if (what.find("can't allocate memory") != what.npos && at != what.npos)
      out_of_memory(index, std::strtoll(what.c_str() + at + 22, nullptr, 10), true);
    throw;
  }
}

struct Memory final : c10::DeviceAllocator {
  DataPtr allocate(size_t n) override {
    check_usable();
    Block* block = allocate_block(current, n);
    auto* cpu = c10::GetCPUAllocator();
    DataPtr data;
    naming_out_of_memory([&] {
      try {
        data = is_large(n) ? untouched::reserve(n) : cpu->allocate(n);
      } catch (...) {  // first: the error says what is allocated
        free_block(current, block);
        accounting[current].empty_cache();
        throw;
      }
    }, current);
    DataPtr labelled = label(Storage(Storage::use_byte_size_t(), n, std::move(data), cpu, true), current, block);
    if (is_large(n)) labelled.cast_context<Allocation>(&free_allocation)->has_values = false;
    return labelled;
  }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
  DeleterFnPtr raw_deleter() const override { return nullptr; }
  bool initialized() override { return true; }
  void emptyCache(PoolId id) override {
    int64_t stack = recording.stack(Recording::Context::ALL);
    for (DeviceIndex i = 0; i < count; ++i) {
      int64_t before = reserved(i);
      accounting[i].empty_cache(id, stack), on_large_gpu[i].empty_cache(id);
      // CUDA's allocator frees the memory of another GPU in the context of the current one (pytorch/pytorch#25752)
      if (reserved(i) != before) make_context(current);
    }
  }
  void recordStream(const DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex i) override { return accounting[i].get_stats(); }
  void resetAccumulatedStats(DeviceIndex i) override { accounting[i].reset_accumulated(); }
  void resetPeakStats(DeviceIndex i) override { accounting[i].reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex i) override {
    make_context(i);
    return {unused(i), capacity};
  }
};

inline Memory& memory = *new Memory;  // never destroyed: tensors may outlive the library's objects

// A storage of the host without values, in the place of one without memory.
inline Storage without_values(size_t n) {
  auto* cpu = c10::GetCPUAllocator();
  return Storage(Storage::use_byte_size_t(), n, is_large(n) ? untouched::reserve(n) : cpu->allocate(n), cpu, true);
}

inline Storage virtual_of(const Storage& host, DeviceIndex index) {
  const bool has_values = !host.device().is_meta();
  DataPtr data = label(has_values ? host : without_values(host.nbytes()), index);
  data.cast_context<Allocation>(&free_allocation)->has_values = has_values;
  return Storage(Storage::use_byte_size_t(), host.nbytes(), std::move(data), &memory, true);
}

// Notes what a virtual storage's memory is used for.
inline void mark(const c10::StorageImpl* s, Kind kind) {
  auto* allocation = allocation_of(s);
  if (allocation && allocation->block) records[allocation->index].mark(allocation->block->number, kind);
}

// Gives the virtual storage the bytes of a CPU storage, or of one without memory: then it has no values.
inline void take_over(c10::StorageImpl* s, const Storage& host, DeviceIndex index) {
  Storage taken = virtual_of(host, index);
  s->set_data_ptr_noswap(std::move(taken.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
  s->set_nbytes(host.nbytes());
}

inline void resize(c10::StorageImpl* s, size_t n) {
  if (is_large(n) || is_large(s->nbytes())) {
    auto* meta = c10::GetAllocator(kMeta);
    return take_over(s, Storage(Storage::use_byte_size_t(), n, meta, true), s->device().index());
  }
  Storage grown(Storage::use_byte_size_t(), n, c10::GetCPUAllocator(), true);
  if (auto copied = std::min(n, s->nbytes())) memcpy(grown.mutable_data(), s->data(), copied);
  take_over(s, grown, s->device().index());
}
}  // namespace xdevice
