// Asynchronous copies to and from pinned memory of the host. CUDA does not wait for them. Here the values arrive when
// the program has waited for the copy; until then the host's memory holds NaN, integers of bytes 0x81, or opposite
// Booleans.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <string_view>
#include <unordered_map>

#include "aliases.h"
#include "pinned.h"

namespace xdevice {

// Optional checks, one bit for each; compiled/__init__.py has the same numbers.
enum : int {
  COPIES = 1,  // Python inspects operations that may copy between devices
  ASYNC = 2,   // asynchronous copies arrive when the program has waited for them
  WARN = 4,    // operations that make the host wait on CUDA warn: torch.cuda.set_sync_debug_mode
  REFUSE = 8,  // operations that make the host wait on CUDA raise an error
};
inline std::atomic<int> checks = 0;

// Calls a function that Python has registered in the namespace xdevice_virtual.
inline void call_python(const char* name, torch::jit::Stack& stack) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("xdevice_virtual::") + name).c_str(), "");
  op.callBoxedForDispatchKey(c10::DispatchKey::CPU, stack);
}

// Warns or raises an error if CUDA makes the host wait for a stream here.
inline void warn_or_refuse_to_wait() {
  const char* words = "called a synchronizing CUDA operation";
  if (C10_UNLIKELY(checks & REFUSE)) TORCH_CHECK(false, words);
  if (C10_UNLIKELY(checks & WARN)) TORCH_WARN(words);
}

enum Misuse : int64_t { READ_EARLY, WRITTEN_EARLY, NEVER_WAITED_FOR };  // cuda/async_copies.py has the same numbers

struct PendingCopy {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // the host's, which the program may free
  char* data;                                         // the beginning of the copied part
  size_t size;
  ScalarType type;
  Stream stream;
  int64_t number, line;      // the number of the copy, and that of the program's line that requested it
  bool to_host;
  std::vector<char> values;  // that the host will receive
  size_t sent_hash;          // of the values that the host sends
  bool is_used = false;      // a later copy of the stream has read it, or its misuse has been reported

  bool is_alive() const {
    auto host = storage.lock();
    auto* begin = host ? static_cast<const char*>(host->data()) : nullptr;
    return begin && data >= begin && data + size <= begin + host->nbytes();
  }
  bool overlaps(const void* from, size_t n) const {
    return data < static_cast<const char*>(from) + n && from < data + size && is_alive();
  }
  size_t hash() const { return std::hash<std::string_view>{}({data, size}); }
  bool is_within(const char* from, size_t n) const { return from <= data && data + size <= from + n; }
  void write_values() const { memcpy(data, values.data(), values.size()); }
  void write_invalid_values() const {
    if (type == kBool) std::transform(values.begin(), values.end(), data, [](char b) { return !b; });
    else memset(data, at::isFloatingType(type) || at::isComplexType(type) ? 0xff : 0x81, size);
  }
};

// The vector clock of a stream or an event: the last copy of each stream that it has waited for.
using VectorClock = std::unordered_map<Stream, int64_t>;

inline std::mutex pending_lock;  // protects the variables below
inline auto& pending = *new std::vector<PendingCopy>;  // in the order in which they were started
inline auto& clocks = *new std::unordered_map<Stream, VectorClock>;
inline int64_t number_of_copies = 0;

inline void report(Misuse misuse, int64_t line) {
  torch::jit::Stack stack{int64_t(misuse), line};
  call_python("report_misuse", stack);
}

inline VectorClock clock_of(const Stream& stream) {
  std::lock_guard<std::mutex> lock(pending_lock);
  if (pending.empty()) return {};
  VectorClock clock = clocks[stream];
  clock[stream] = number_of_copies;
  return clock;
}

// Lets a stream wait for the copies that another clock has reached.
inline void join(const Stream& stream, const VectorClock& other) {
  if (other.empty()) return;
  std::lock_guard<std::mutex> lock(pending_lock);
  for (auto& [source, number] : other) {
    auto& last = clocks[stream][source];
    last = std::max(last, number);
  }
}

inline bool is_complete(const PendingCopy& copy, const VectorClock& clock) {
  auto last = clock.find(copy.stream);
  return last != clock.end() && copy.number <= last->second;
}

// Reports a CPU tensor that is read before a copy to its memory has arrived.
inline std::unique_ptr<at::ObserverContext> check_reads(const at::RecordFunction& run) {
  auto name = run.operator_name();
  auto op = name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
  bool copies = name && name->name == "aten::copy_";
  if (!op || !(copies || op->hasKernelForDispatchKey(c10::DispatchKey::CPU))) return nullptr;
  std::vector<Tensor> read;
  const auto& arguments = op->schema().arguments();
  for (size_t i = 0; i < std::min(run.inputs().size(), arguments.size()); ++i) {
    const IValue& input = run.inputs()[i];
    if (arguments[i].alias_info() && !arguments[i].alias_info()->isWrite()) continue;  // a view reads nothing
    if (input.isTensor()) read.push_back(input.toTensor());
    else if (input.isTensorList()) for (const Tensor& t : input.toTensorVector()) read.push_back(t);
  }
  auto is_host = [](const Tensor& t) { return t.defined() && t.is_cpu() && t.layout() == kStrided && t.has_storage(); };
  if (copies && !std::all_of(read.begin(), read.end(), is_host)) return nullptr;  // the stream's own copies
  std::vector<int64_t> lines;
  {
    std::lock_guard<std::mutex> lock(pending_lock);
    for (const Tensor& t : read) {
      if (!is_host(t)) continue;
      size_t size = at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize());
      for (auto& copy : pending)
        if (copy.to_host && !copy.is_used && copy.overlaps(t.const_data_ptr(), size))
          copy.is_used = true, lines.push_back(copy.line);
    }
  }
  for (auto line : lines) report(READ_EARLY, line);
  return nullptr;
}

// Checks the program's operations while copies to the host are pending; it costs nothing at other times.
inline void check_operations(bool enabled) {
  static at::CallbackHandle handle = 0;
  static bool is_enabled = false;
  if (enabled == std::exchange(is_enabled, enabled)) return;
  auto callback = at::RecordFunctionCallback(&check_reads).needsInputs(true).scopes({at::RecordScope::FUNCTION});
  if (!handle) handle = at::addGlobalCallback(callback);
  else if (enabled) at::reenableCallback(handle);
  else at::disableCallback(handle);
}

// Completes the copies that the program has waited for, and drops those whose memory it has freed.
template <class F>
void complete(F has_waited_for) {
  std::vector<std::pair<Misuse, int64_t>> misuses;
  {
    std::lock_guard<std::mutex> lock(pending_lock);
    if (pending.empty()) return;
    auto complete_one = [&](PendingCopy& copy) {
      bool is_alive = copy.is_alive();
      if (is_alive && !has_waited_for(copy)) return false;
      if (is_alive && copy.to_host) copy.write_values();
      else if (copy.is_used) return true;
      else if (copy.to_host) misuses.emplace_back(NEVER_WAITED_FOR, copy.line);
      else if (is_alive && copy.hash() != copy.sent_hash) misuses.emplace_back(WRITTEN_EARLY, copy.line);
      return true;
    };
    pending.erase(std::remove_if(pending.begin(), pending.end(), complete_one), pending.end());
    if (pending.empty()) clocks.clear();
    check_operations(std::any_of(pending.begin(), pending.end(), [](auto& copy) { return copy.to_host; }));
  }
  for (auto& [misuse, line] : misuses) report(misuse, line);
}

inline void complete(const VectorClock& clock) {
  if (!clock.empty()) complete([&](const PendingCopy& copy) { return is_complete(copy, clock); });
}

// Completes the copies of a device, and those that its streams have waited for.
inline void complete_all(DeviceIndex index) {
  VectorClock clock;
  {
    std::lock_guard<std::mutex> lock(pending_lock);
    for (auto& [stream, other] : clocks)
      if (stream.device_index() == index)
        for (auto& [source, number] : other) clock[source] = std::max(clock[source], number);
  }
  complete([&](const PendingCopy& copy) { return copy.stream.device_index() == index || is_complete(copy, clock); });
}

// The line of a copy to the host that nothing has waited for and that has not been reported, or -1.
inline int64_t next_pending() {
  std::lock_guard<std::mutex> lock(pending_lock);
  for (auto& copy : pending)
    if (copy.to_host && !std::exchange(copy.is_used, true)) return copy.line;
  return -1;
}

// An asynchronous copy between a virtual GPU and a CPU tensor.
struct AsyncCopy {
  Tensor host;
  Stream stream;
  bool to_host;

  char* data() const { return static_cast<char*>(host.mutable_data_ptr()); }

  // Calls a function with each copy to this memory that the stream has waited for: a stream may send values that it has
  // itself copied to the host.
  template <class F>
  void for_each_received(F call) {
    std::lock_guard<std::mutex> lock(pending_lock);
    VectorClock clock = clocks[stream];
    clock[stream] = number_of_copies;
    for (auto& copy : pending)
      if (copy.to_host && copy.overlaps(data(), host.nbytes()) && is_complete(copy, clock)) call(copy);
  }
  void before() {
    complete([](const PendingCopy&) { return false; });
    if (!to_host) for_each_received([](PendingCopy& copy) { copy.write_values(), copy.is_used = true; });
  }
  void after() {
    torch::jit::Stack stack;
    call_python("current_line", stack);
    add_pending(stack[0].toInt());
    if (!to_host) for_each_received([](PendingCopy& copy) { copy.write_invalid_values(); });
  }
  void add_pending(int64_t line) {
    std::lock_guard<std::mutex> lock(pending_lock);
    PendingCopy copy{host.storage().getWeakStorageImpl(), data(), host.nbytes(), host.scalar_type(), stream,
        ++number_of_copies, line, to_host};
    if (to_host) {
      for (auto& other : pending) {
        if (!other.to_host && other.overlaps(data(), host.nbytes())) other.is_used = true;
        if (other.to_host && other.is_within(data(), host.nbytes())) other.values.clear();  // this copy overwrites them
      }
      copy.values.assign(data(), data() + host.nbytes());
      copy.write_invalid_values();
      check_operations(true);
    } else {
      copy.sent_hash = copy.hash();
    }
    pending.push_back(std::move(copy));
  }
};
}  // namespace xdevice
