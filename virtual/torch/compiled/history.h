// What has happened to the memory of a virtual GPU, as torch.cuda.memory's snapshots tell it. Only recorded if Python
// asks for it.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <chrono>
#include <cstdint>
#include <deque>

namespace xdevice {
using PoolId = c10::MempoolId_t;
constexpr PoolId DEFAULT_POOL{0, 0};

// cuda/memory_snapshot.py has the same order
enum Action : int { ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM,
                    SNAPSHOT };

constexpr int64_t NO_STACK = -1;

// Called before memory is allocated or freed. Returns the number of the Python stack.
using StackOf = int64_t (*)();

struct MemoryEvent {
  Action action;
  int64_t address, size, stream;
  int64_t stack;  // the number of the Python stack that caused it, or NO_STACK
  PoolId pool;
  int64_t time = 0;  // in microseconds
  int64_t note = 0;  // the number of the program's note
};

// What to record.
struct Recording {
  using Context = c10::CachingDeviceAllocator::RecordContext;
  bool is_on = false;
  size_t most_events = 0;
  Context context = Context::NEVER;  // which stacks
  int skipped = 0;                   // a bit for each action
  StackOf stack_of = nullptr;

  int64_t stack(Context needed) const { return stack_of && context >= needed ? stack_of() : NO_STACK; }
};

inline Recording recording;  // of all virtual GPUs; written and read with Python's lock held, or by one thread

inline thread_local int64_t current_note = 0;

class History {
 public:
  void add(const MemoryEvent& event) {
    if (!recording.is_on || recording.skipped >> event.action & 1) return;
    using namespace std::chrono;
    events.push_back(event);
    events.back().time = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
    events.back().note = current_note;
    if (recording.context < Recording::Context::ALLOC) events.back().stack = NO_STACK;
    while (events.size() > recording.most_events) events.pop_front();
  }

  std::deque<MemoryEvent> events;
};
}  // namespace xdevice
