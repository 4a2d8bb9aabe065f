// The host's memory while nothing is computed: large tensors take addresses, and memory only where they are touched.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <vector>

#ifndef _WIN32
#include <sys/mman.h>
#include <unistd.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace xdevice {
inline bool computing = true;  // set to false when the measuring of a program begins
constexpr size_t LARGE = 1 << 20;

// Whether memory of this size has no values.
inline bool is_large(size_t n) { return C10_UNLIKELY(!computing) && n > LARGE; }

namespace untouched {
#ifdef _WIN32
inline c10::DataPtr reserve(size_t n) { return c10::GetCPUAllocator()->allocate(n); }
inline bool is_zero(const void*, size_t) { return false; }
#else
struct Mapping {
  void* data;
  size_t size;
  ~Mapping() { munmap(data, size); }
};

inline c10::DataPtr reserve(size_t n) {
  void* data = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(data != MAP_FAILED, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", n, " bytes.");
  auto free = [](void* mapping) { delete static_cast<Mapping*>(mapping); };
  return {data, new Mapping{data, n}, free, c10::kCPU};
}

// Whether the memory was never written, or with zeros only. Pages that do not exist yet are not touched.
inline bool is_zero(const void* data, size_t n) {
  const size_t page = sysconf(_SC_PAGESIZE);
  auto* begin = reinterpret_cast<char*>(uintptr_t(data) / page * page);
  const size_t size = static_cast<const char*>(data) + n - begin;
#ifdef __APPLE__
  std::vector<char> exists((size + page - 1) / page);
#else
  std::vector<unsigned char> exists((size + page - 1) / page);
#endif
  if (mincore(begin, size, exists.data())) return false;
  for (size_t i = 0; i < exists.size(); ++i) {
    if (!(exists[i] & 1)) continue;
    auto* from = std::max<const char*>(begin + i * page, static_cast<const char*>(data));
    auto* to = std::min<const char*>(begin + (i + 1) * page, static_cast<const char*>(data) + n);
    if (std::any_of(from, to, [](char byte) { return byte; })) return false;
  }
  return true;
}
#endif

// From now on, large memory of the C library is new, and so zero: none that was used before.
inline void separate() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, LARGE);
#endif
}
}  // namespace untouched
}  // namespace xdevice
