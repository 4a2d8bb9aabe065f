// Virtual GPUs for PaddlePaddle: a custom device whose memory is the host's.
//
// PaddlePaddle's C interface for devices (device_ext.h, in its wheel) asks for a table of functions. A virtual GPU is
// synchronous, so streams and events do nothing. PaddlePaddle itself counts the allocated memory. The plug-in is linked
// with no symbols of PaddlePaddle; it defines five, at its end, that are found before PaddlePaddle's own, since it is
// loaded first. The number of devices is read from the environment when PaddlePaddle loads it.

#include <dlfcn.h>

#include <algorithm>
#include <array>  // device_ext.h uses it and does not include it
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "half_kernels.h"
#include "paddle/phi/backends/callback_manager.h"
#include "paddle/phi/backends/device_ext.h"
#include "paddle/phi/core/dense_tensor.h"

namespace {

constexpr size_t kMost = 64;
constexpr size_t kAlignment = 64;  // of a cache line, as the CPU's kernels expect
size_t device_count = 0;
size_t limit = 0;  // bytes of each device; 0 for none
std::atomic<size_t> used[kMost];
thread_local int current_device = 0;
char nothing = 0;  // the target of all streams and events

size_t Asked(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : 0;
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
  *address = std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  return *address ? C_SUCCESS : C_FAILED;
}

C_Status FreeHost(const C_Device, void* address, size_t) { return std::free(address), C_SUCCESS; }

C_Status Allocate(const C_Device device, void** address, size_t size) {
  if (!Exists(device)) return C_ERROR;
  const bool fits = used[device->id].fetch_add(size) + size <= (limit ? limit : SIZE_MAX);
  if (fits && AllocateHost(device, address, size) == C_SUCCESS) return C_SUCCESS;
  used[device->id] -= size;
  *address = nullptr;  // PaddlePaddle then frees what it keeps and tries again, or raises its own error
  return C_SUCCESS;
}

C_Status Free(const C_Device device, void* address, size_t size) {
  used[device->id] -= size;
  return FreeHost(device, address, size);
}

// Python may watch copies: it answers with 0 for one that is not to be made.
using Watch = int (*)(int source, int target, size_t size, const void* from);  // -1 is the host

std::atomic<Watch> watch{nullptr};
thread_local int unwatched = 0;  // copies that no GPU would make

C_Status Watched(int source, int target, void* to, const void* from, size_t size) {
  const Watch see = watch.load(std::memory_order_relaxed);
  if (see && !unwatched && !see(source, target, size, from)) return C_FAILED;
  std::memmove(to, from, size);
  return C_SUCCESS;
}

// On, to, from or between devices, and on a stream or not: all memory is the host's.
template <class... Stream>
struct In {
  static C_Status Copy(const C_Device, Stream..., void* to, const void* from, size_t size) {
    return std::memmove(to, from, size), C_SUCCESS;
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
  *free = *total - (limit ? used[device->id].load() : 0);
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
    return std::iota(devices, devices + device_count, size_t{0}), C_SUCCESS;
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
    return std::memset(address, value, size), C_SUCCESS;
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

// PaddlePaddle 3.0 to 3.3.1 makes a stream for each copy to, from or on a device, and with it a thread pool, which starts
// a thread and joins it: nine tenths of the time of a small operation. Here a callback runs at once.
namespace phi {
CallbackManager::CallbackManager(stream::Stream* stream) : stream_(stream) {}
void CallbackManager::AddCallback(std::function<void()> callback) const { callback(); }
void CallbackManager::Wait() const {}

// Gloo's process group refuses tensors that are not on the CPU. A virtual GPU's memory is the host's.
namespace distributed {
struct CommStaticCheck {
  static void CheckPlace(const DenseTensor&, AllocationType);
};
void CommStaticCheck::CheckPlace(const DenseTensor&, AllocationType) {}
}  // namespace distributed
}  // namespace phi

// Where a virtual GPU has no kernel, PaddlePaddle copies what a kernel of the CPU reads, and copies what it has written
// back. What it reads is in the host's memory already: the kernel is given that, and writes to memory of its own.
namespace xdevice {

using half::Holder;
using half::Tensor;

struct Borrowed : phi::Allocation {
  Borrowed(Holder lender, const phi::Place& place)
      : phi::Allocation(lender->ptr(), lender->size(), place), lender_(std::move(lender)) {}
  Holder lender_;  // kept alive
};

// A function of the library that an address is in, by its symbol.
template <class Function>
Function FunctionNear(const void* address, const char* symbol) {
  Dl_info library;
  if (!dladdr(address, &library)) return nullptr;
  void* handle = dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  return handle ? reinterpret_cast<Function>(dlsym(handle, symbol)) : nullptr;
}

using Copied = void (*)(Tensor*, const Tensor*);  // the copy constructor

// A DenseTensor as a function returns it: whoever calls destroys it, so that nothing here needs PaddlePaddle's.
struct Returned {
  Returned(const Tensor& tensor, const Holder& holder, Copied copied) {
    copied(reinterpret_cast<Tensor*>(bytes), &tensor);
    half::hold(reinterpret_cast<Tensor*>(bytes), holder);
  }
  Returned(const Returned&) = delete;
  ~Returned() {}
  alignas(Tensor) unsigned char bytes[sizeof(Tensor)];
};

#define TRANS_DATA_PLACE "_ZN6paddle12experimental14TransDataPlaceERKN3phi11DenseTensorENS1_5PlaceE"

Returned TransDataPlace(const Tensor&, phi::Place) __asm__(TRANS_DATA_PLACE);

Returned TransDataPlace(const Tensor& tensor, phi::Place place) {
  static const void* caller = __builtin_return_address(0);
  static const auto move = FunctionNear<decltype(&TransDataPlace)>(caller, TRANS_DATA_PLACE);
  static const auto copied = FunctionNear<Copied>(caller, "_ZN3phi11DenseTensorC1ERKS0_");
  const bool reads = place.GetType() == phi::AllocationType::CPU && tensor.Holder() &&
                     tensor.Holder()->place().GetType() == phi::AllocationType::CUSTOM;
  if (!reads || !copied || !half::hold) {  // what the CPU's kernel has written
    const struct Unwatched {
      Unwatched() { ++unwatched; }
      ~Unwatched() { --unwatched; }
    } now;
    return move(tensor, place);
  }
  return Returned(tensor, std::make_shared<Borrowed>(tensor.Holder(), place), copied);
}

// Give the CPU kernels for 16-bit floats.
void RegisterHalfKernels(const void* caller) {
  const auto factory = FunctionNear<phi::KernelFactory& (*)()>(caller, "_ZN3phi13KernelFactory8InstanceEv");
  const auto customs = FunctionNear<phi::CustomKernelMap& (*)()>(caller, "_ZN3phi15CustomKernelMap8InstanceEv");
  const auto add = FunctionNear<half::Registered>(
      caller, "_ZN3phi15CustomKernelMap20RegisterCustomKernelERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS"
              "_9KernelKeyERKNS_6KernelE");
  half::set_type = FunctionNear<decltype(half::set_type)>(caller, "_ZN3phi11DenseTensor8set_typeENS_8DataTypeE");
  half::hold = FunctionNear<decltype(half::hold)>(
      caller, "_ZN3phi11DenseTensor11ResetHolderERKSt10shared_ptrINS_10AllocationEE");
  if (factory && customs && add && half::set_type && half::hold) half::Register(&factory(), &customs(), add);
}

}  // namespace xdevice

extern "C" void WatchCopies(Watch see) { watch = see; }

extern "C" void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  device_count = std::min(Asked("XDEVICE_PADDLE_VIRTUAL_GPUS"), kMost);
  limit = Asked("XDEVICE_PADDLE_VIRTUAL_MEMORY");
  params->device_type = const_cast<char*>("vgpu");
  params->sub_device_type = const_cast<char*>("xdevice");
  C_DeviceInterface* table = params->interface;
  std::memset(reinterpret_cast<char*>(table) + sizeof(size_t), 0, table->size - sizeof(size_t));
  FillTable(table);
  xdevice::RegisterHalfKernels(__builtin_return_address(0));
}
