// What has happened to the memory of a virtual GPU, as torch.cuda.memory's snapshots tell it. Only recorded if Python
// asks for it.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>

namespace xdevice {
// cuda/memory_snapshot.py has the same order
enum Action : int { ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM,
                    SNAPSHOT };

constexpr int64_t NO_STACK = -1;

struct MemoryEvent {
  Action action;
  int64_t address, size, stream;
  int64_t stack;  // the number of the Python stack that allocates, or NO_STACK
  int64_t time;   // in microseconds
};

class History {
 public:
  bool is_recorded = false;

  // The events are forgotten if none are recorded any more.
  void record(bool on, size_t most_events, bool clear) {
    is_recorded = on, most = most_events;
    if (!on || clear) events.clear();
  }

  void add(Action action, int64_t address, int64_t size, int64_t stream, int64_t stack = NO_STACK) {
    if (!is_recorded) return;
    using namespace std::chrono;
    int64_t time = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
    events.push_back({action, address, size, stream, stack, time});
    while (events.size() > most) events.pop_front();
  }

  std::deque<MemoryEvent> events;

 private:
  size_t most = 0;
};
}  // namespace xdevice
