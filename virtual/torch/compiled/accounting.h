// What a virtual GPU has in use: while virtual GPUs stand in for CUDA's, as CUDA's caching allocator would have reserved
// and split it. Nothing is allocated here.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/core/impl/PyInterpreter.h>

#include <iomanip>
#include <sstream>

#include "caching_allocator.h"
#include "peak_record.h"

namespace xdevice {
using namespace at;

constexpr int MOST = 64;

inline c10::DeviceType TYPE = c10::DeviceType::PrivateUse1;  // or CUDA, while the virtual GPUs stand in
inline c10::DispatchKey KEY = c10::DispatchKey::PrivateUse1;
inline DeviceIndex count = 0;
inline thread_local DeviceIndex current = 0;
inline std::atomic<bool> used = false;    // whether a virtual GPU has been used
inline std::atomic<bool> counted = false;  // whether a program has asked how many there are, which CUDA must start for
inline std::atomic<bool> forked = false;  // whether this process was forked from one that has used or counted them

inline void check_usable() {
  used.store(true, std::memory_order_relaxed);
  if (!forked.load(std::memory_order_relaxed)) return;
  TORCH_CHECK(TYPE != c10::DeviceType::CUDA,
      "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
      "start method");
  TORCH_CHECK(false, "Cannot use virtual GPUs in a forked process, as CUDA cannot be used there; "
      "use the 'spawn' start method, or give workers tensors on the CPU");
}

// Reports an event to torch's sanitizer for races of streams, if it is in use, as CUDA's own functions do.
template <class F>
void trace(F report) {
  if (TYPE != c10::DeviceType::CUDA) return;
  if (const auto* tracer = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(tracer != nullptr)) report(*tracer);
}

inline CachingAllocator* const accounting = new CachingAllocator[MOST];  // never destroyed: tensors may outlive it
inline CachingAllocator* const on_large_gpu = new CachingAllocator[MOST];  // the same without a limit: see peak_record.h
inline int64_t capacity = 0;   // bytes of each virtual GPU
inline thread_local std::array<c10::StreamId, MOST> streams{};  // this thread's current ones

// The stream as a number that no other GPU's has, in place of CUDA's pointer. The default stream is 0 on all.
inline int64_t handle_of(DeviceIndex index, c10::StreamId stream) {
  return stream ? int64_t(index + 1) << 32 | stream : 0;
}

inline int64_t reserved(DeviceIndex index) { return accounting[index].get_stats().reserved_bytes[0].current; }
inline int64_t allocated(DeviceIndex index) { return accounting[index].get_stats().allocated_bytes[0].current; }

// As PyTorch writes bytes: 1024.00 MiB, and from the next byte on 1.00 GiB.
inline std::string readable(int64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  if (bytes > (int64_t(1) << 30)) text << bytes / double(1 << 30) << " GiB";
  else if (bytes > (1 << 20)) text << bytes / double(1 << 20) << " MiB";
  else if (bytes > (1 << 10)) text << bytes / double(1 << 10) << " KiB";
  else text << bytes << " bytes";
  return text.str();
}

// The bytes of a GPU that no process has.
inline int64_t unused(DeviceIndex index) {
  return std::max<int64_t>(capacity - accounting[index].share.of_all(), 0);
}

// Called before the error of a full memory, with the device, what was wanted, what is allowed and what is free.
using OnOutOfMemory = void (*)(int, int64_t, int64_t, int64_t);
inline OnOutOfMemory on_out_of_memory = nullptr;

// The GPU's memory is full, or the host's.
[[noreturn]] inline void out_of_memory(DeviceIndex index, int64_t wanted, bool of_host = false) {
  const char* word = TYPE == c10::DeviceType::CUDA ? "CUDA" : "vgpu";
  TORCH_CHECK_WITH(OutOfMemoryError, wanted < int64_t(1) << 60, word,
      " out of memory. Tried to allocate more than 1EB memory.");
  auto& allocator = accounting[index];
  int64_t in_use = allocated(index), held = reserved(index);
  std::ostringstream others;
  machine::for_each_other(allocator.share.gpu, [&](int64_t process, int64_t bytes) {
    others << "Process " << process << " has " << readable(bytes) << " memory in use. ";
  });
  std::string allowed = allocator.allowed != UNLIMITED ? readable(allocator.allowed) + " allowed; " : "";
  int64_t unreserved = unused(index);
  std::string free = readable(unreserved);
  const bool of_cuda = !of_host && TYPE == c10::DeviceType::CUDA;
  if (!of_host) allocator.out_of_memory(unreserved, wanted, streams[index]);
  if (of_cuda) wanted = length_of_segment(rounded(wanted));
  if (of_cuda && on_out_of_memory)
    on_out_of_memory(index, wanted, std::min(allocator.allowed, capacity), unreserved);
  int64_t in_pools = allocator.unused_in_pools();
  std::string of_pools =
      in_pools ? "with " + readable(in_pools) + " allocated in private pools (e.g., CUDA Graphs), " : "";
  TORCH_CHECK_WITH(OutOfMemoryError, !of_cuda,
      "CUDA out of memory. Tried to allocate ", readable(wanted), ". GPU ", int(index), " has a total capacity of ",
      readable(capacity), " of which ", free, " is free. ", others.str(),
      "Including non-PyTorch memory, this process has ", readable(allocator.share.bytes),
      " memory in use. ", allowed, "Of the allocated memory ", readable(in_use + in_pools),
      " is allocated by PyTorch, ", of_pools, "and ", readable(held - in_use - in_pools),
      " is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
      "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  "
      "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)");
  TORCH_CHECK_WITH(OutOfMemoryError, false, word, " out of memory. Tried to allocate ", readable(wanted), ". GPU ",
      int(index), " has a total capacity of ", readable(capacity), " of which ", free, " is free. ", allowed,
      "It is virtual, in the host's memory, and ", readable(in_use), " are allocated by PyTorch");
}

inline PeakRecord* const records = new PeakRecord[MOST];

inline int64_t bytes_of_context = 0;
inline std::array<std::atomic<bool>, MOST> has_context{};

// Called with the GPU, when the process first uses it.
using OnFirstUse = void (*)(int);
inline OnFirstUse on_first_use = nullptr;

// CUDA makes a context on a GPU, with the code of its kernels, when a process first uses it.
inline void make_context(DeviceIndex index) {
  if (C10_LIKELY(has_context[index].load(std::memory_order_relaxed)) || has_context[index].exchange(true)) return;
  accounting[index].take_besides(bytes_of_context);
  if (on_first_use) on_first_use(index);
}

inline bool uses_allocator = true;  // otherwise a program has memory that torch does not count

// Memory of a virtual GPU, on the current stream.
inline Block* allocate_block(DeviceIndex index, int64_t size) {
  if (size == 0 || !uses_allocator) return nullptr;
  make_context(index);
  const LineOf asked = line_of;
  int line = C10_UNLIKELY(asked != nullptr) ? asked(index, size) : 0;
  if (line == HOST_IS_FULL) out_of_memory(index, size, true);
  Block* block = accounting[index].allocate(size, streams[index], recording.stack(Recording::Context::STATE));
  if (!block) out_of_memory(index, size);
  if (C10_LIKELY(asked == nullptr)) return block;
  records[index].allocated(block->number, block->size, line, reserved(index));
  block->on_large_gpu = on_large_gpu[index].allocate(size, streams[index]);
  return block;
}

inline void free_block(DeviceIndex index, Block* block) {
  if (!block) return;
  if (C10_UNLIKELY(line_of != nullptr)) records[index].freed(block->number, block->size);
  if (Block* same = std::exchange(block->on_large_gpu, nullptr)) on_large_gpu[index].free(same);
  accounting[index].free(block, recording.stack(Recording::Context::ALL));
}
}  // namespace xdevice
