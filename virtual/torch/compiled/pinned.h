// Pinned memory: ordinary memory whose addresses are registered as pinned.
#pragma once
#include "memory.h"

namespace xdevice {
struct Pinned final : c10::Allocator {
  static inline std::mutex& lock = *new std::mutex;
  static inline auto& ranges = *new std::map<uintptr_t, size_t>;

  // Registers memory, or unregisters it if n is 0; returns the status of cudaHostRegister or cudaHostUnregister.
  static int set_range(uintptr_t pointer, size_t n) {
    std::lock_guard<std::mutex> one(lock);
    return n ? (ranges[pointer] = n, 0) : ranges.erase(pointer) ? 0 : 1;
  }
  static void release(void* data) {
    set_range(uintptr_t(data), 0);
    c10::free_cpu(data);
  }
  DataPtr allocate(size_t n) override {
    n = std::max<size_t>(n, 1);
    void* data = c10::alloc_cpu(n);
    set_range(uintptr_t(data), n);
    return {data, data, &release, Device(kCPU)};
  }
  bool holds(const void* pointer) {
    std::lock_guard<std::mutex> one(lock);
    auto after = ranges.upper_bound(uintptr_t(pointer));
    if (after == ranges.begin()) return false;
    --after;
    return uintptr_t(pointer) < after->first + after->second;
  }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
  DeleterFnPtr raw_deleter() const override { return nullptr; }
};

inline Pinned& pinned = *new Pinned;
}  // namespace xdevice
