// Streams and events. An operation is done when its call returns, so a stream is an empty queue and an event is a time;
// what waits is told to torch's sanitizer, as CUDA's own functions tell it, and lets late copies arrive.
#pragma once
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

#include "late.h"

namespace xdevice {

inline void check_exists(DeviceIndex index) {
  TORCH_CHECK(index < count, TYPE == c10::DeviceType::CUDA ? "CUDA" : "vgpu", " error: invalid device ordinal ",
      int(index), "; there are ", name_of(0), " to ", name_of(count - 1));
}

struct Streams {
  c10::StreamId of[MOST] = {};
};
inline thread_local Streams streams;
inline std::atomic<c10::StreamId> last_stream = 0;

inline Stream stream_now(DeviceIndex index) { return Stream(Stream::UNSAFE, {TYPE, index}, streams.of[index]); }

// The host waits for all that the stream has been given.
inline void wait_for(const Stream& stream) {
  trace([&](auto& tracer) { tracer->trace_gpu_stream_synchronization(TYPE, stream.id()); });
  settle(reached_by(stream));
}

// When a virtual bus will have carried what it has been given, where Python looks at copies; and waiting for it.
inline double carried_at(DeviceIndex index) {
  if (!(checks & COPIES)) return 0;
  torch::jit::Stack stack{int64_t(index)};
  call_python("until", stack);
  return stack[0].toDouble();
}

inline void wait_until(double carried) {
  if (!(carried > 0)) return;
  torch::jit::Stack stack{carried};
  call_python("wait", stack);
}

// One stream waits for another, without the host.
inline void order(const Stream& before, const Stream& after) { join(after, reached_by(before)); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  using Clock = std::chrono::steady_clock;
  struct Event {
    Clock::time_point at;
    Reached by;
    double carried;
  };
  static Event& of(void* event) { return *static_cast<Event*>(event); }

  DeviceType type() const override { return TYPE; }
  Device getDevice() const override { return {TYPE, current}; }
  void setDevice(Device d) const override {
    if (d.index() == current || d.index() < 0) return;
    check_exists(d.index());
    current = d.index();
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
  Stream getStream(Device d) const override { return stream_now(resolved(d).index()); }
  Stream getDefaultStream(Device d) const override { return Stream(Stream::DEFAULT, resolved(d)); }
  Stream getNewStream(Device d, int) const override { return Stream(Stream::UNSAFE, resolved(d), ++last_stream); }
  Stream getStreamFromGlobalPool(Device d, bool) const override { return getNewStream(d, 0); }
  Stream exchangeStream(Stream s) const override {
    Stream old = getStream(s.device());
    streams.of[s.device_index()] = s.id();
    return old;
  }
  void* getStreamNativeHandle(const Stream s) const { return reinterpret_cast<void*>(s.id()); }  // new in torch 2.11
  void record(void** event, const Stream& s, const DeviceIndex, const c10::EventFlag) const override {
    if (!*event) {
      *event = new Event;
      trace([&](auto& tracer) { tracer->trace_gpu_event_creation(TYPE, uintptr_t(*event)); });
    }
    trace([&](auto& tracer) { tracer->trace_gpu_event_record(TYPE, uintptr_t(*event), s.id()); });
    of(*event) = {Clock::now(), reached_by(s), carried_at(s.device_index())};
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    if (!event) return;
    trace([&](auto& tracer) { tracer->trace_gpu_event_deletion(TYPE, uintptr_t(event)); });
    delete &of(event);
  }
  void block(void* event, const Stream& s) const override {
    trace([&](auto& tracer) { tracer->trace_gpu_event_wait(TYPE, uintptr_t(event), s.id()); });
    join(s, of(event).by);
  }
  bool queryEvent(void* event) const override {
    if (event) synchronizeEvent(event);
    return true;
  }
  bool queryStream(const Stream& s) const override {
    synchronizeStream(s);
    return true;
  }
  void synchronizeStream(const Stream& s) const override {
    wait_until(carried_at(s.device_index()));
    wait_for(s);
  }
  void synchronizeEvent(void* event) const override {
    trace([&](auto& tracer) { tracer->trace_gpu_event_synchronization(TYPE, uintptr_t(event)); });
    wait_until(of(event).carried);
    settle(of(event).by);
  }
  void synchronizeDevice(const DeviceIndex index) const override {
    trace([&](auto& tracer) { tracer->trace_gpu_device_synchronization(TYPE); });
    wait_until(carried_at(index));
    settle_all(index);
  }
  double elapsedTime(void* a, void* b, const DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(of(b).at - of(a).at).count();
  }
};
}  // namespace xdevice
