// What was allocated on a virtual GPU when the most was: each block with its kind and the program's line that allocated
// it. Only recorded if Python asks for it.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace xdevice {
enum Kind : int { OTHER, WEIGHTS, GRADIENTS, OPTIMIZER, WORKSPACE };  // cuda/memory_use.py has the same numbers

// Called before each allocation with the device and the bytes. Returns the number of the program's line, or
// HOST_IS_FULL.
using LineOf = int (*)(int device, int64_t bytes);
constexpr int HOST_IS_FULL = -1;
inline LineOf line_of = nullptr;  // a null pointer: nothing is recorded

class PeakRecord {
 public:
  // Writes the most bytes reserved into this number, too, at once: another process can read it.
  void share(int64_t* number) {
    std::lock_guard<std::mutex> one(lock);
    if ((shared = number)) *shared = most_reserved;
  }

  void allocated(int64_t number, int64_t size, int line, int64_t reserved) {
    std::lock_guard<std::mutex> one(lock);
    add({number, size, line, true});
    if (reserved > most_reserved) {
      most_reserved = reserved;
      if (shared) *shared = reserved;
    }
    current += size;
    if (current <= peak) return;
    peak = current, peak_line = line;
    events_to_peak = events.size();
    is_peak_in_events = true;
  }

  void freed(int64_t number, int64_t size) {
    std::lock_guard<std::mutex> one(lock);
    current -= size;
    add({number, size, 0, false});
  }

  // The first kind that a block is marked with counts.
  void mark(int64_t number, Kind kind) {
    std::lock_guard<std::mutex> one(lock);
    kinds.emplace(number, kind);
  }

  // An operation needs temporary memory of this kind: these bytes at most, beside what is reserved.
  void needed(int temporary, int64_t reserved, int64_t at_most) {
    std::lock_guard<std::mutex> one(lock);
    temporaries |= 1 << temporary;
    if (reserved + at_most <= most_with_temporary) return;
    most_with_temporary = reserved + at_most, temporary_of_most = temporary;
  }

  // The first line has the most bytes allocated, the most reserved, the line that allocated last before the peak, the
  // most reserved with temporary memory and its kind, and all kinds, one bit for each. Then there is one line for each
  // kind and line of the program, with bytes and the number of blocks.
  std::string text() {
    std::lock_guard<std::mutex> one(lock);
    fold();
    std::map<std::pair<int, int>, std::pair<int64_t, int64_t>> sums;
    for (auto& [number, block] : at_peak) {
      auto kind = kinds.find(number);
      auto& [bytes, blocks] = sums[{kind == kinds.end() ? OTHER : kind->second, block.line}];
      bytes += block.size, ++blocks;
    }
    std::ostringstream text;
    text << peak << ' ' << most_reserved << ' ' << peak_line << ' ' << most_with_temporary << ' ' << temporary_of_most << ' '
         << temporaries << '\n';
    for (auto& [key, sum] : sums)
      text << key.first << ' ' << key.second << ' ' << sum.first << ' ' << sum.second << '\n';
    return text.str();
  }

 private:
  struct Event {
    int64_t number, size;
    int line;
    bool is_allocation;
  };
  struct Live {
    int64_t size;
    int line;
  };
  using Blocks = std::unordered_map<int64_t, Live>;
  static constexpr size_t MOST_EVENTS = 1 << 18;

  std::mutex lock;
  std::vector<Event> events;     // since the blocks in `live` were live
  size_t events_to_peak = 0;
  bool is_peak_in_events = false;
  Blocks live, at_peak;
  std::unordered_map<int64_t, Kind> kinds;
  int64_t current = 0, peak = 0, most_reserved = 0;
  int64_t most_with_temporary = 0;
  int peak_line = 0, temporary_of_most = 0, temporaries = 0;
  int64_t* shared = nullptr;

  void add(const Event& event) {
    if (events.size() >= MOST_EVENTS) fold();
    events.push_back(event);
  }

  // Brings `live` up to date, and `at_peak` if the peak was among the events. Forgets kinds that neither needs.
  void fold() {
    for (size_t i = 0; i < events.size(); ++i) {
      const Event& event = events[i];
      if (event.is_allocation) live[event.number] = {event.size, event.line};
      else live.erase(event.number);
      if (is_peak_in_events && i + 1 == events_to_peak) at_peak = live;
    }
    events.clear();
    is_peak_in_events = false;
    for (auto kind = kinds.begin(); kind != kinds.end();)
      kind = live.count(kind->first) || at_peak.count(kind->first) ? std::next(kind) : kinds.erase(kind);
  }
};
}  // namespace xdevice
