// The memory of virtual GPUs: the CPU allocator's, under another device label. While they stand in for CUDA's, it is
// counted as CUDA's caching allocator would have reserved and split it.
//
// The context of a virtual storage's DataPtr holds the CPU storage of the same bytes, so the CPU alias of a
// tensor is one TensorImpl, and both see it when memory grows.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/alloc_cpu.h>

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
inline std::atomic<bool> forked = false;  // whether this process was forked from one that has used them

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

// ---- memory accounting ----

inline CachingAllocator* const accounting = new CachingAllocator[MOST];  // never destroyed: tensors may outlive it
inline int64_t capacity = 0;   // bytes of each virtual GPU
inline thread_local std::array<c10::StreamId, MOST> streams{};  // this thread's current ones

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
  std::string allowed = allocator.allowed != UNLIMITED ? readable(allocator.allowed) + " allowed; " : "";
  int64_t unreserved = std::max<int64_t>(capacity - held, 0);
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
      readable(capacity), " of which ", free, " is free. Including non-PyTorch memory, this process has ", readable(held),
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

inline bool uses_allocator = true;  // otherwise a program has memory that torch does not count

// Memory of a virtual GPU, on the current stream.
inline Block* allocate_block(DeviceIndex index, int64_t size) {
  if (size == 0 || !uses_allocator) return nullptr;
  const LineOf asked = line_of;
  int line = C10_UNLIKELY(asked != nullptr) ? asked(index, size) : 0;
  if (line == HOST_IS_FULL) out_of_memory(index, size, true);
  Block* block = accounting[index].allocate(size, streams[index], recording.stack(Recording::Context::STATE));
  if (!block) out_of_memory(index, size);
  if (C10_UNLIKELY(asked != nullptr)) records[index].allocated(block->number, block->size, line, reserved(index));
  return block;
}

inline void free_block(DeviceIndex index, Block* block) {
  if (!block) return;
  if (C10_UNLIKELY(line_of != nullptr)) records[index].freed(block->number, block->size);
  accounting[index].free(block, recording.stack(Recording::Context::ALL));
}

// The context of a virtual storage's DataPtr.
struct Allocation {
  Storage host;
  DeviceIndex index;
  Block* block;
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

// The CPU storage of a virtual storage's bytes. Memory of another library, by DLPack, has no such context.
inline Storage host_of(const Storage& s) {
  if (auto* allocation = s.data_ptr().cast_context<Allocation>(&free_allocation)) return allocation->host;
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
    try {
      naming_out_of_memory([&] { data = cpu->allocate(n); }, current);
    } catch (...) {
      free_block(current, block);
      accounting[current].empty_cache();
      throw;
    }
    return label(Storage(Storage::use_byte_size_t(), n, std::move(data), cpu, true), current, block);
  }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
  DeleterFnPtr raw_deleter() const override { return nullptr; }
  bool initialized() override { return true; }
  void emptyCache(PoolId id) override {
    int64_t stack = recording.stack(Recording::Context::ALL);
    for (DeviceIndex i = 0; i < count; ++i) accounting[i].empty_cache(id, stack);
  }
  void recordStream(const DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex i) override { return accounting[i].get_stats(); }
  void resetAccumulatedStats(DeviceIndex i) override { accounting[i].reset_accumulated(); }
  void resetPeakStats(DeviceIndex i) override { accounting[i].reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex i) override {
    return {std::max<int64_t>(capacity - reserved(i), 0), capacity};
  }
};

inline Memory& memory = *new Memory;  // never destroyed: tensors may outlive the library's objects

inline Storage virtual_of(const Storage& host, DeviceIndex index) {
  return Storage(Storage::use_byte_size_t(), host.nbytes(), label(host, index), &memory, true);
}

// Notes what a virtual storage's memory is used for.
inline void mark(const c10::StorageImpl* s, Kind kind) {
  auto* allocation = s->data_ptr().cast_context<Allocation>(&free_allocation);
  if (allocation && allocation->block) records[allocation->index].mark(allocation->block->number, kind);
}

// Gives the virtual storage the bytes of a CPU storage.
inline void take_over(c10::StorageImpl* s, const Storage& host, DeviceIndex index) {
  s->set_data_ptr_noswap(label(host, index));
  s->set_nbytes(host.nbytes());
}

inline void resize(c10::StorageImpl* s, size_t n) {
  Storage grown(Storage::use_byte_size_t(), n, c10::GetCPUAllocator(), true);
  if (auto copied = std::min(n, s->nbytes())) memcpy(grown.mutable_data(), s->data(), copied);
  take_over(s, grown, s->device().index());
}

// ---- pinned memory: ordinary memory whose addresses are registered as pinned ----

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

// ---- tensors in that memory, of torch's own classes ----

// The tensor in an argument, if there is one.
inline const Tensor* tensor_in(const IValue& v) {
  return v.isTensor() && v.toTensor().defined() ? &v.toTensor() : nullptr;
}

// A tensor with the sizes, strides, dtype and lazy bits of another, in that storage.
inline Tensor like(const Tensor& t, Storage storage, c10::DispatchKey key) {
  Tensor tensor = at::detail::make_tensor<TensorImpl>(std::move(storage), DispatchKeySet(key), t.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (t.is_conj()) impl->_set_conj(true);
  if (t.is_neg()) impl->_set_neg(true);
  return tensor;
}

// The indices and values of sparse tensors are virtual; the sizes and strides of nested ones stay on the host.
inline bool is_sparse(const Tensor& t) {
  auto layout = t.layout();
  return layout == kSparse || layout == kSparseCsr || layout == kSparseCsc || layout == kSparseBsr || layout == kSparseBsc;
}

inline SparseTensorImpl* coo(c10::TensorImpl* t) { return static_cast<SparseTensorImpl*>(t); }
inline SparseCsrTensorImpl* compressed(c10::TensorImpl* t) { return static_cast<SparseCsrTensorImpl*>(t); }

// Gives a sparse tensor the sizes of another of its layout, and the parts that `part` makes of the other's.
template <class F>
void fill_sparse(c10::TensorImpl* to, const Tensor& from, F part) {
  bool allowed = to->allow_tensor_metadata_change();
  to->set_allow_tensor_metadata_change(true);
  if (from.layout() == kSparse) {
    auto *target = coo(to), *source = coo(from.unsafeGetTensorImpl());
    target->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
    target->set_indices_and_values_unsafe(part(source->indices()), part(source->values()));
    target->set_coalesced(source->coalesced());
  } else {
    auto* source = compressed(from.unsafeGetTensorImpl());
    compressed(to)->set_member_tensors(
        part(source->compressed_indices()), part(source->plain_indices()), part(source->values()), source->sizes());
  }
  to->set_allow_tensor_metadata_change(allowed);
}

// A sparse tensor like another, on that device.
template <class F>
Tensor sparse_like(const Tensor& from, c10::DispatchKey dense, Device device, F part) {
  auto kind = from.layout() == kSparse ? c10::DispatchKey::Sparse : c10::DispatchKey::SparseCsr;
  DispatchKeySet keys(c10::toRuntimePerBackendFunctionalityKey(kind, c10::toBackendComponent(dense)));
  c10::DeviceGuard guard(device);  // torch makes a sparse tensor on the current device
  Tensor tensor = from.layout() == kSparse
      ? at::detail::make_tensor<SparseTensorImpl>(keys, from.dtype())
      : at::detail::make_tensor<SparseCsrTensorImpl>(keys, device, from.layout(), from.dtype());
  fill_sparse(tensor.unsafeGetTensorImpl(), from, part);
  return tensor;
}

// A nested tensor with the sizes and strides of another, in that storage.
inline Tensor nested_like(const Tensor& from, Storage storage, c10::DispatchKey dense) {
  auto* source = at::native::get_nested_tensor_impl(from);
  auto key = c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::NestedTensor, c10::toBackendComponent(dense));
  return at::detail::make_tensor<at::native::NestedTensorImpl>(std::move(storage),
      DispatchKeySet(key) | c10::autograd_nested, from.dtype(), source->get_nested_sizes(), source->get_nested_strides(),
      source->get_storage_offsets());
}
}  // namespace xdevice
