// What torch's C++ asks about devices: streams and events, and the hooks.
//
// An operation is complete when its call returns, so a stream is an empty queue and an event is a time. Functions that
// wait report this to torch's sanitizer, as CUDA's own functions do, and complete asynchronous copies.
#pragma once
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

#include "async_copies.h"
#include "generators.h"

namespace xdevice {

inline void check_exists(DeviceIndex index) {
  if (index < count) return;
  std::string devices = c10::str(Device(TYPE, 0), " to ", Device(TYPE, count - 1));
  TORCH_CHECK(TYPE == c10::DeviceType::CUDA, "vgpu error: invalid device ordinal ", int(index), "; there are ", devices);
  constexpr int INVALID_DEVICE = 101;  // CUDA's number of the error
  throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, INVALID_DEVICE,
      "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs? There are " + devices);
}

// CUDA's streams come from pools of 32, one for each priority, in turn: the 33rd is the first again. The numbers are CUDA's.
inline c10::StreamId pooled_stream(DeviceIndex index, int priority) {
  constexpr int LENGTH = 32, LEVELS = 4;
  static std::array<std::array<std::atomic<uint32_t>, LEVELS>, MOST> made{};
  TORCH_CHECK(priority <= 0, "Expected cuda stream priority to be less than or equal to 0, got ", priority);
  int level = std::min(-priority, LEVELS - 1);
  return c10::StreamId(made[index][level]++ % LENGTH) << 5 | (level + 1) << 1 | 1;
}

inline int64_t handle_of(const Stream& s) { return handle_of(s.device_index(), s.id()); }

inline Stream current_stream(DeviceIndex index) { return Stream(Stream::UNSAFE, {TYPE, index}, streams[index]); }

// The host waits for all work of the stream.
inline void wait_for(const Stream& stream) {
  trace([&](auto& tracer) { tracer->trace_gpu_stream_synchronization(TYPE, handle_of(stream)); });
  complete(clock_of(stream));
}

// The time at which all copies on the virtual bus will be complete, if Python checks copies; 0 otherwise.
inline double busy_until(DeviceIndex index) {
  if (!(checks & COPIES)) return 0;
  torch::jit::Stack stack{int64_t(index)};
  call_python("busy_until", stack);
  return stack[0].toDouble();
}

inline void wait_until(double time) {
  if (!(time > 0)) return;
  torch::jit::Stack stack{time};
  call_python("wait_until", stack);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  using Time = std::chrono::steady_clock;
  struct Event {
    Time::time_point time;
    VectorClock clock;
    double busy_until;  // the time at which the copies before it will be complete
  };
  static Event& event_of(void* event) { return *static_cast<Event*>(event); }

  DeviceType type() const override { return TYPE; }
  Device getDevice() const override { return {TYPE, current}; }
  void setDevice(Device d) const override {
    if (d.index() == current || d.index() < 0) return;
    check_exists(d.index());
    current = d.index();
    make_context(current);
  }
  void uncheckedSetDevice(Device d) const noexcept override {
    if (d.index() >= 0) current = d.index();
  }
  Device exchangeDevice(Device d) const override {
    Device old = getDevice();
    setDevice(d);
    return old;
  }
  DeviceIndex deviceCount() const noexcept override { return count; }
  Device resolved(Device d) const { return d.has_index() ? d : getDevice(); }
  Stream getStream(Device d) const override { return current_stream(resolved(d).index()); }
  Stream getDefaultStream(Device d) const override { return Stream(Stream::DEFAULT, resolved(d)); }
  Stream getNewStream(Device d, int priority) const override {
    d = resolved(d);
    return Stream(Stream::UNSAFE, d, pooled_stream(d.index(), priority));
  }
  Stream getStreamFromGlobalPool(Device d, bool is_urgent) const override { return getNewStream(d, is_urgent ? -3 : 0); }
  Stream exchangeStream(Stream s) const override {
    Stream old = getStream(s.device());
    streams[s.device_index()] = s.id();
    return old;
  }
  void* getStreamNativeHandle(const Stream s) const { return reinterpret_cast<void*>(handle_of(s)); }  // new in torch 2.11
  void record(void** event, const Stream& s, const DeviceIndex, const c10::EventFlag) const override {
    if (!*event) {
      *event = new Event;
      trace([&](auto& tracer) { tracer->trace_gpu_event_creation(TYPE, uintptr_t(*event)); });
    }
    trace([&](auto& tracer) { tracer->trace_gpu_event_record(TYPE, uintptr_t(*event), handle_of(s)); });
    event_of(*event) = {Time::now(), clock_of(s), busy_until(s.device_index())};
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    if (!event) return;
    trace([&](auto& tracer) { tracer->trace_gpu_event_deletion(TYPE, uintptr_t(event)); });
    delete &event_of(event);
  }
  void block(void* event, const Stream& s) const override {
    trace([&](auto& tracer) { tracer->trace_gpu_event_wait(TYPE, uintptr_t(event), handle_of(s)); });
    join(s, event_of(event).clock);
  }
  bool queryEvent(void* event) const override {
    if (event) synchronizeEvent(event);
    return true;
  }
  bool queryStream(const Stream& s) const override {
    wait(s);
    return true;
  }
  void synchronizeStream(const Stream& s) const override {
    warn_or_refuse_to_wait();
    wait(s);
  }
  void wait(const Stream& s) const {
    wait_until(busy_until(s.device_index()));
    wait_for(s);
  }
  void synchronizeEvent(void* event) const override {
    trace([&](auto& tracer) { tracer->trace_gpu_event_synchronization(TYPE, uintptr_t(event)); });
    wait_until(event_of(event).busy_until);
    complete(event_of(event).clock);
  }
  void synchronizeDevice(const DeviceIndex index) const override {
    trace([&](auto& tracer) { tracer->trace_gpu_device_synchronization(TYPE); });
    make_context(index < 0 ? current : index);
    wait_until(busy_until(index));
    complete_all(index);
  }
  double elapsedTime(void* a, void* b, const DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(event_of(b).time - event_of(a).time).count();
  }
};

template <class Base>
struct Hooks : Base {
  using Base::Base;
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return count > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return count; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex i) const override { Guard().setDevice({TYPE, i}); }
  DeviceIndex exchangeDevice(DeviceIndex i) const override { return Guard().exchangeDevice({TYPE, i}).index(); }
  DeviceIndex maybeExchangeDevice(DeviceIndex i) const override { return exchangeDevice(i); }
  Allocator* getPinnedMemoryAllocator() const override { return &pinned; }
  bool isPinnedPtr(const void* pointer) const override { return pinned.holds(pointer); }
  const Generator& getDefaultGenerator(DeviceIndex i) const override { return generators.at(i < 0 ? current : i); }
  Generator getNewGenerator(DeviceIndex i) const override {  // the first of each device is its default, made at start
    i = i < 0 ? current : i;
    check_exists(i);
    auto made = new_generator(i);
    if (!generators[i].defined()) generators[i] = made;
    return made;
  }
};

struct PrivateHooks final : Hooks<PrivateUse1HooksInterface> {
  void resizePrivateUse1Bytes(const Storage& s, size_t n) const override { resize(s.unsafeGetStorageImpl(), n); }
};

// The base class says that there is no cuDNN, no MAGMA and no driver, also on a build with CUDA.
struct CudaHooks final : Hooks<CUDAHooksInterface> {
  bool hasCUDA() const override { return count > 0; }
  DeviceIndex current_device() const override { return current; }
  int getNumGPUs() const override { return count; }
  void deviceSynchronize(DeviceIndex i) const override { Guard().synchronizeDevice(i); }
  std::string showConfig() const override { return "  - CUDA devices are virtual GPUs, on the CPU\n"; }
  int64_t cuFFTGetPlanCacheMaxSize(DeviceIndex) const override { return 0; }
  void cuFFTSetPlanCacheMaxSize(DeviceIndex, int64_t) const override {}
  int64_t cuFFTGetPlanCacheSize(DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(DeviceIndex) const override {}
  Allocator* getCUDADeviceAllocator() const override { return &memory; }
};
static_assert(sizeof(CudaHooks) == sizeof(CUDAHooksInterface), "it is constructed in the memory of one");

// Replaces torch's hooks, guard and allocator for the device type.
inline void replace_hooks() {
  c10::SetAllocator(TYPE, &memory, 1);
  static c10::impl::DeviceGuardImplRegistrar guard(TYPE, new Guard);
  if (TYPE == c10::DeviceType::CUDA)  // torch created them when it was imported, and has no function to replace them
    new (const_cast<CUDAHooksInterface*>(&at::detail::getCUDAHooks())) CudaHooks;
  else
    RegisterPrivateUse1HooksInterface(new PrivateHooks);
}
}  // namespace xdevice
