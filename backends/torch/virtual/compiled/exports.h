// What Python calls in the plug-in. Included last, by virtual_gpu.cc alone.
#pragma once

namespace xdevice {
namespace {
struct Quiet : c10::WarningHandler {  // of torch, that kernels are replaced
  void process(const c10::Warning&) override {}
};

template <class F>
const char* error_of(F call) {
  static thread_local std::string text;
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard silence(&quiet);
  try {
    call();
    return nullptr;
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = error.what();
  }
  return text.c_str();
}
}  // namespace
}  // namespace xdevice

extern "C" {
using namespace xdevice;

// Starts n virtual GPUs. Returns an error, or a null pointer.
EXPORT const char* xdevice_start(int n, int cuda, int64_t bytes, int enforced) {
  return error_of([&] {
    if (cuda) TYPE = c10::DeviceType::CUDA, KEY = c10::DispatchKey::CUDA;
    count = n, capacity = bytes;
    if (enforced)
      for (auto& each : accounting) each.limit = bytes;
    answer();
    register_operations();
    register_kinds();
    register_for_python();
    register_timer();
    if (cuda) at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
#ifndef _WIN32
    pthread_atfork(nullptr, nullptr, [] { forked = used.load(); });
#endif
  });
}

// After operations were added: those with a kernel for real GPUs get the CPU's. Returns an error, or a null pointer.
EXPORT const char* xdevice_cover() {
  return error_of([] { cover(); });
}

// Resizes a storage, whose values stay. Returns an error, or a null pointer.
EXPORT const char* xdevice_resize(void* storage, int64_t bytes) {
  return error_of([&] { resize(static_cast<c10::StorageImpl*>(storage), bytes); });
}

EXPORT int xdevice_current() { return current; }
EXPORT int xdevice_exchange(int index) {  // which exists; a negative one changes nothing
  int before = current;
  if (index >= 0) current = index, used = true;
  return before;
}
EXPORT int xdevice_used() { return used; }
EXPORT int xdevice_forked() { return forked; }
EXPORT void xdevice_use(int whether) { used = whether; }
EXPORT void xdevice_show(int n) { count = n; }
EXPORT int64_t xdevice_pending() { return next_pending(); }
EXPORT void xdevice_check(int what, int whether) { whether ? checks |= what : checks &= ~what; }
EXPORT int xdevice_pin(uintptr_t pointer, int64_t bytes) {  // of the program's own memory; 0 bytes: no longer
  at::globalContext().lazyInitDevice(TYPE);  // before, torch says that nothing is pinned
  return pinned.note(pointer, bytes);
}
EXPORT void xdevice_alert(const char* operation, const char* caller, const char* argument, const char* value) {
  alerts[operation] = {caller, argument, value};
}
EXPORT void xdevice_dtypes(const char* name, const char* reduce, const char* words, uint64_t on_cuda, uint64_t on_cpu) {
  Dtypes& row = dtypes[name];
  row.on_cpu |= on_cpu;
  if (on_cuda) row.on_cuda.push_back({reduce, words, on_cuda}), refusing = true;
}
EXPORT int64_t xdevice_allocated(int index) { return accounting[index].now; }
EXPORT int64_t xdevice_peak(int index) { return accounting[index].peak; }
EXPORT int64_t xdevice_total(int index) { return accounting[index].total; }
EXPORT void xdevice_limit(int index, int64_t bytes) { accounting[index].limit = bytes; }
EXPORT void xdevice_forget_peak(int index) { memory.resetPeakStats(index); }
EXPORT void xdevice_forget_total(int index) { memory.resetAccumulatedStats(index); }
}
