// Asynchronous copies to and from pinned memory of the host, which CUDA may not have finished. They arrive when the
// program has waited for them; until then the host's memory holds NaN, integers of bytes 0x81, or opposite Booleans.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <string_view>
#include <unordered_map>

#include "memory.h"

namespace xdevice {

// Optional checks, one bit for each; compiled/__init__.py has the same numbers.
enum : int {
  COPIES = 1,  // Python inspects operations that may copy between devices
  LATE = 2,    // asynchronous copies arrive when the program has waited for them
  WARN = 4,    // operations that make the host wait on CUDA warn: torch.cuda.set_sync_debug_mode
  REFUSE = 8,  // operations that make the host wait on CUDA raise an error
};
inline std::atomic<int> checks = 0;

// Calls a function that Python has registered in the namespace xdevice_virtual.
inline void call_python(const char* name, torch::jit::Stack& stack) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("xdevice_virtual::") + name).c_str(), "");
  op.callBoxedForDispatchKey(c10::DispatchKey::CPU, stack);
}

// Warns or raises an error where CUDA makes the host wait for a stream.
inline void warn_or_refuse_to_wait() {
  const char* words = "called a synchronizing CUDA operation";
  if (C10_UNLIKELY(checks & REFUSE)) TORCH_CHECK(false, words);
  if (C10_UNLIKELY(checks & WARN)) TORCH_WARN(words);
}

enum Misuse : int64_t { READ_EARLY, WRITTEN_EARLY, NEVER_WAITED_FOR };  // cuda/late_copies.py has the same numbers

struct Late {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // the host's, which the program may free
  char* at;                                           // where the copied part begins
  size_t size;
  ScalarType type;
  Stream stream;
  int64_t number, place;       // the number of the copy, and that of the line that made it
  bool to_host;
  std::vector<char> arriving;  // the values on their way to the host
  size_t sent;                 // a hash of the values that the host sends
  bool is_used = false;        // a later copy of the stream has read it, or its misuse has been reported

  bool is_alive() const {
    auto now = storage.lock();
    auto* begin = now ? static_cast<const char*>(now->data()) : nullptr;
    return begin && at >= begin && at + size <= begin + now->nbytes();
  }
  bool overlaps(const void* from, size_t n) const {
    return at < static_cast<const char*>(from) + n && from < at + size && is_alive();
  }
  size_t hash() const { return std::hash<std::string_view>{}({at, size}); }
  void arrive() const { memcpy(at, arriving.data(), size); }
  void spoil() const {
    if (type == kBool) std::transform(arriving.begin(), arriving.end(), at, [](char b) { return !b; });
    else memset(at, at::isFloatingType(type) || at::isComplexType(type) ? 0xff : 0x81, size);
  }
};

// For a stream or an event: the last copy of each stream that it has waited for.
using Reached = std::unordered_map<Stream, int64_t>;

inline std::mutex pending_lock;  // protects the variables below
inline auto& pending = *new std::vector<Late>;  // in the order in which they were started
inline auto& reached = *new std::unordered_map<Stream, Reached>;
inline int64_t copies_made = 0;

inline void tell(Misuse what, int64_t place) {
  torch::jit::Stack stack{int64_t(what), place};
  call_python("misused", stack);
}

inline Reached reached_by(const Stream& stream) {
  std::lock_guard<std::mutex> lock(pending_lock);
  if (pending.empty()) return {};
  Reached own = reached[stream];
  own[stream] = copies_made;
  return own;
}

inline void join(const Stream& stream, const Reached& other) {
  if (other.empty()) return;
  std::lock_guard<std::mutex> lock(pending_lock);
  for (auto& [of, number] : other) {
    auto& last = reached[stream][of];
    last = std::max(last, number);
  }
}

inline bool is_over(const Late& copy, const Reached& for_it) {
  auto last = for_it.find(copy.stream);
  return last != for_it.end() && copy.number <= last->second;
}

// Reports a CPU tensor that is used before a copy to its memory has arrived.
inline std::unique_ptr<at::ObserverContext> notice(const at::RecordFunction& run) {
  auto name = run.operator_name();
  auto op = name ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
  bool copies = name && name->name == "aten::copy_";
  if (!op || !(copies || op->hasKernelForDispatchKey(c10::DispatchKey::CPU))) return nullptr;
  std::vector<Tensor> read;
  const auto& arguments = op->schema().arguments();
  for (size_t i = 0; i < std::min(run.inputs().size(), arguments.size()); ++i) {
    const IValue& given = run.inputs()[i];
    if (arguments[i].alias_info() && !arguments[i].alias_info()->isWrite()) continue;  // a view reads nothing
    if (given.isTensor()) read.push_back(given.toTensor());
    else if (given.isTensorList()) for (const Tensor& t : given.toTensorVector()) read.push_back(t);
  }
  auto is_host = [](const Tensor& t) { return t.defined() && t.is_cpu() && t.layout() == kStrided && t.has_storage(); };
  if (copies && !std::all_of(read.begin(), read.end(), is_host)) return nullptr;  // the stream's own copies
  std::vector<int64_t> places;
  {
    std::lock_guard<std::mutex> lock(pending_lock);
    for (const Tensor& t : read) {
      if (!is_host(t)) continue;
      size_t size = at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.itemsize());
      for (auto& copy : pending)
        if (copy.to_host && !copy.is_used && copy.overlaps(t.const_data_ptr(), size))
          copy.is_used = true, places.push_back(copy.place);
    }
  }
  for (auto place : places) tell(READ_EARLY, place);
  return nullptr;
}

// Checks the program's operations while copies to the host are pending; it costs nothing at other times.
inline void listen(bool wanted) {
  static at::CallbackHandle handle = 0;
  static bool listens = false;
  if (wanted == std::exchange(listens, wanted)) return;
  auto callback = at::RecordFunctionCallback(&notice).needsInputs(true).scopes({at::RecordScope::FUNCTION});
  if (!handle) handle = at::addGlobalCallback(callback);
  else if (wanted) at::reenableCallback(handle);
  else at::disableCallback(handle);
}

// Completes the copies that the program has waited for, and drops those whose memory it has freed.
template <class F>
void settle(F is_over) {
  std::vector<std::pair<Misuse, int64_t>> misuses;
  {
    std::lock_guard<std::mutex> lock(pending_lock);
    if (pending.empty()) return;
    auto ends = [&](Late& copy) {
      bool is_alive = copy.is_alive();
      if (is_alive && !is_over(copy)) return false;
      if (is_alive && copy.to_host) copy.arrive();
      else if (copy.is_used) return true;
      else if (copy.to_host) misuses.emplace_back(NEVER_WAITED_FOR, copy.place);
      else if (is_alive && copy.hash() != copy.sent) misuses.emplace_back(WRITTEN_EARLY, copy.place);
      return true;
    };
    pending.erase(std::remove_if(pending.begin(), pending.end(), ends), pending.end());
    if (pending.empty()) reached.clear();
    listen(std::any_of(pending.begin(), pending.end(), [](auto& copy) { return copy.to_host; }));
  }
  for (auto& [what, place] : misuses) tell(what, place);
}

inline void settle(const Reached& by) {
  if (!by.empty()) settle([&](const Late& copy) { return is_over(copy, by); });
}

inline void settle_all(DeviceIndex index) {  // the copies of a device, and those that its streams have waited for
  Reached by;
  {
    std::lock_guard<std::mutex> lock(pending_lock);
    for (auto& [stream, others] : reached)
      if (stream.device_index() == index)
        for (auto& [of, number] : others) by[of] = std::max(by[of], number);
  }
  settle([&](const Late& copy) { return copy.stream.device_index() == index || is_over(copy, by); });
}

// The line of a copy to the host that nothing has waited for and that has not been reported, or -1.
inline int64_t next_pending() {
  std::lock_guard<std::mutex> lock(pending_lock);
  for (auto& copy : pending)
    if (copy.to_host && !std::exchange(copy.is_used, true)) return copy.place;
  return -1;
}

// A copy between a virtual GPU and a CPU tensor: what is done before and after the values are copied.
struct LateCopy {
  Tensor host;
  Stream stream;
  bool to_host;

  char* at() const { return static_cast<char*>(host.mutable_data_ptr()); }

  template <class F>
  void each_lent(F call) {  // a stream may send what it has itself copied to the host
    std::lock_guard<std::mutex> lock(pending_lock);
    Reached own = reached[stream];
    own[stream] = copies_made;
    for (auto& copy : pending)
      if (copy.to_host && copy.overlaps(at(), host.nbytes()) && is_over(copy, own)) call(copy);
  }
  void before() {
    settle([](const Late&) { return false; });
    if (!to_host) each_lent([](Late& copy) { copy.arrive(), copy.is_used = true; });
  }
  void after() {
    torch::jit::Stack stack;
    call_python("place", stack);
    keep(stack[0].toInt());
    if (!to_host) each_lent([](Late& copy) { copy.spoil(); });
  }
  void keep(int64_t place) {
    std::lock_guard<std::mutex> lock(pending_lock);
    Late copy{host.storage().getWeakStorageImpl(), at(), host.nbytes(), host.scalar_type(), stream, ++copies_made,
        place, to_host};
    if (to_host) {
      for (auto& other : pending)
        if (!other.to_host && other.overlaps(at(), host.nbytes())) other.is_used = true;
      copy.arriving.assign(at(), at() + host.nbytes());
      copy.spoil();
      listen(true);
    } else {
      copy.sent = copy.hash();
    }
    pending.push_back(std::move(copy));
  }
};
}  // namespace xdevice
