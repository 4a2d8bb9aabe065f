// The accounting of CUDA's caching allocator, as PyTorch documents it: blocks of 512 bytes, pools of small and of large
// blocks, segments that are split and stay cached. Nothing is stored at its addresses: a tensor's values are in the
// host's memory, which has no cache.
//
// PYTORCH_CUDA_ALLOC_CONF is read by torch's own parser. Memory that only waits for another stream does not exist here,
// since an operation is complete when its call returns: record_stream delays nothing.
#pragma once
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "history.h"

namespace xdevice {
using AllocatorConfig = c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

constexpr int64_t UNLIMITED = std::numeric_limits<int64_t>::max();
constexpr int64_t MIB = 1 << 20;
constexpr int64_t BLOCK = 512;               // sizes are multiples of this
constexpr int64_t SMALL = MIB;               // larger blocks are in the pool of large blocks
constexpr int64_t SMALL_SEGMENT = 2 * MIB;
constexpr int64_t LARGE_SEGMENT = 20 * MIB;  // for blocks of less than SEGMENT_OF_ITS_OWN
constexpr int64_t SEGMENT_OF_ITS_OWN = 10 * MIB;

inline int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

struct Block {
  int64_t address, size, requested;
  c10::StreamId stream;
  bool large, expandable, allocated;
  Block *previous, *next;  // the neighbours in the segment
  int64_t number = 0;      // of the allocation, on this GPU
  int64_t stack = NO_STACK;  // of the allocation
  bool is_split() const { return previous || next; }
};

class CachingAllocator {
 public:
  int64_t limit = UNLIMITED;       // of the bytes reserved
  int64_t soft_limit = UNLIMITED;  // more is reserved only after the cache has been released
  bool caching = true;        // otherwise a block has the size requested, and is returned when it is freed

  // Returns a null pointer if the limit does not allow it.
  Block* allocate(int64_t requested, c10::StreamId stream, int64_t stack = NO_STACK) {
    std::lock_guard<std::mutex> one(lock);
    stack_of_call = stack;
    int64_t size = caching ? rounded(requested) : requested;
    bool large = !caching || size > SMALL;
    Block* block = caching ? cached(size, stream, large) : nullptr;
    if (!block) block = reserve(size, stream, large);
    if (!block && caching && release_oversize(size, stream, large)) block = reserve(size, stream, large);
    if (!block && caching) {
      release_cached();
      ++stats.num_alloc_retries;
      block = reserve(size, stream, large);
    }
    if (!block && soft_limit < limit) {
      auto soft = std::exchange(soft_limit, UNLIMITED);
      block = reserve(size, stream, large);
      soft_limit = soft;
    }
    if (!block) return ++stats.num_ooms, nullptr;
    split(block, size);
    block->allocated = true;
    block->requested = requested;
    block->number = ++last_number;
    block->stack = stack;
    history.add(ALLOC, block->address, requested, stream, stack);
    count_allocated(*block, 1);
    return block;
  }

  void free(Block* block) {
    std::lock_guard<std::mutex> one(lock);
    stack_of_call = NO_STACK;
    for (auto action : {FREE_REQUESTED, FREE_COMPLETED})  // at once: operations are complete when their calls return
      history.add(action, block->address, block->requested, block->stream);
    count_allocated(*block, -1);
    block->allocated = false;
    block->requested = 0;
    block->stack = NO_STACK;
    if (!caching) return release(block);
    for (Block* neighbour : {block->previous, block->next})
      if (neighbour && !neighbour->allocated) merge(block, neighbour);
    if (is_inactive_split(*block)) count_inactive(*block, 1);
    unused(*block).insert(block);
  }

  void empty_cache() {
    std::lock_guard<std::mutex> one(lock);
    stack_of_call = NO_STACK;
    release_cached();
  }

  void record_history(bool on, size_t most_events, bool clear) {
    std::lock_guard<std::mutex> one(lock);
    history.record(on, most_events, clear);
  }

  void out_of_memory(int64_t free, int64_t size, c10::StreamId stream) {
    std::lock_guard<std::mutex> one(lock);
    history.add(OOM, free, size, stream, stack_of_call);
  }

  // The events so far. That they were asked for is an event, too.
  std::deque<MemoryEvent> snapshot() {
    std::lock_guard<std::mutex> one(lock);
    auto events = history.events;
    history.add(SNAPSHOT, 0, stats.active_bytes[0].current, 0);
    return events;
  }

  c10::CachingDeviceAllocator::DeviceStats get_stats() {
    std::lock_guard<std::mutex> one(lock);
    auto copy = stats;
    auto most = AllocatorConfig::max_split_size();
    copy.max_split_size = most == std::numeric_limits<size_t>::max() ? -1 : int64_t(most);
    return copy;
  }

  template <class F>
  void for_each_stat(F change) {
    std::lock_guard<std::mutex> one(lock);
    for (auto* each : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
             &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes})
      for (auto& stat : *each) change(stat);
    change(stats.oversize_allocations), change(stats.oversize_segments);
  }

  void reset_accumulated() {
    for_each_stat([](auto& stat) { stat.reset_accumulated(); });
    stats.num_alloc_retries = stats.num_ooms = stats.num_device_alloc = stats.num_device_free = 0;
  }

  // Calls a function for each block, in the order of addresses; a block without a previous one begins a segment.
  template <class F>
  void for_each_block(F call) {
    std::lock_guard<std::mutex> one(lock);
    for (const Block* block : blocks) call(*block);
  }

 private:
  struct ByAddress {
    bool operator()(const Block* a, const Block* b) const { return a->address < b->address; }
  };
  struct BySize {  // within a stream
    auto key(const Block* b) const { return std::make_tuple(b->stream, b->size, b->address); }
    bool operator()(const Block* a, const Block* b) const { return key(a) < key(b); }
  };
  using Pool = std::set<Block*, BySize>;

  std::mutex lock;
  Pool pools[2];  // the blocks that are not allocated: small, large
  std::set<Block*, ByAddress> blocks;
  std::map<std::pair<c10::StreamId, bool>, Block*> tails;  // the last blocks of segments that can grow
  int64_t next_address = int64_t(0x7f) << 40, last_number = 0;
  History history;
  int64_t stack_of_call = NO_STACK;  // of the call that holds the lock
  c10::CachingDeviceAllocator::DeviceStats stats;

  Pool& unused(const Block& block) { return pools[block.large]; }

  void count(StatArray& stat, bool large, int64_t amount) {
    for (auto kind : {StatType::AGGREGATE, large ? StatType::LARGE_POOL : StatType::SMALL_POOL})
      if (amount >= 0) stat[size_t(kind)].increase(amount);
      else stat[size_t(kind)].decrease(-amount);
  }

  void count_allocated(const Block& block, int sign) {
    for (auto* stat : {&stats.allocation, &stats.active}) count(*stat, block.large, sign);
    for (auto* stat : {&stats.allocated_bytes, &stats.active_bytes}) count(*stat, block.large, sign * block.size);
    count(stats.requested_bytes, block.large, sign * block.requested);
    if (!caching || may_split(block.size)) return;
    sign > 0 ? stats.oversize_allocations.increase(1) : stats.oversize_allocations.decrease(1);
  }

  // Whether the block can neither be used as it is nor be released: the rest of its segment is in use.
  bool is_inactive_split(const Block& block) const { return block.is_split() && !block.expandable; }

  void count_inactive(const Block& block, int sign) {
    count(stats.inactive_split, block.large, sign);
    count(stats.inactive_split_bytes, block.large, sign * block.size);
  }

  static int64_t rounded(int64_t size) {
    if (size < BLOCK) return BLOCK;
    int64_t divisions = AllocatorConfig::roundup_power2_divisions(size);
    if (divisions <= 1 || size <= BLOCK * divisions) return round_up(size, BLOCK);
    int64_t power = 1;
    while (power * 2 <= size) power *= 2;
    return round_up(size, std::max<int64_t>(power / divisions, 1));
  }

  static bool may_split(int64_t size) { return uint64_t(size) < AllocatorConfig::max_split_size(); }

  // The smallest unused block of the stream that is large enough. A block that may not be split serves similar sizes.
  Block* cached(int64_t size, c10::StreamId stream, bool large) {
    Block wanted{0, size, 0, stream, large, false, false, nullptr, nullptr};
    auto found = pools[large].lower_bound(&wanted);
    if (found == pools[large].end() || (*found)->stream != stream) return nullptr;
    Block* block = *found;
    if (may_split(size) && !may_split(block->size)) return nullptr;
    int64_t similar = size + AllocatorConfig::max_non_split_rounding_size();
    if (!may_split(size) && block->size >= similar) return nullptr;
    pools[large].erase(found);
    if (is_inactive_split(*block)) count_inactive(*block, -1);
    return block;
  }

  Block* add(const Block& block) {
    Block* added = new Block(block);
    blocks.insert(added);
    return added;
  }

  // A new segment, or more of one that grows; a null pointer if the limit does not allow it.
  Block* reserve(int64_t size, c10::StreamId stream, bool large) {
    if (caching && AllocatorConfig::use_expandable_segments()) return grow(size, stream, large);
    int64_t length = caching ? length_of_segment(size, large) : size;
    if (!can_reserve(length)) return nullptr;
    count_reserved(length, large);
    count(stats.segment, large, 1);
    if (caching && !may_split(length)) stats.oversize_segments.increase(1);
    int64_t address = next_address;
    next_address += round_up(std::max<int64_t>(length, 1), SMALL_SEGMENT);
    history.add(SEGMENT_ALLOC, address, length, stream, stack_of_call);
    return add({address, length, 0, stream, large, false, false, nullptr, nullptr});
  }

  bool can_reserve(int64_t length) const {
    int64_t most = std::min(limit, soft_limit);
    return length <= most && stats.reserved_bytes[0].current <= most - length;
  }

  void count_reserved(int64_t length, bool large) {
    count(stats.reserved_bytes, large, length);
    ++(length < 0 ? stats.num_device_free : stats.num_device_alloc);
  }

  static int64_t length_of_segment(int64_t size, bool large) {
    if (!large) return SMALL_SEGMENT;
    return size < SEGMENT_OF_ITS_OWN ? LARGE_SEGMENT : round_up(size, SMALL_SEGMENT);
  }

  static int64_t page(bool large) { return large ? LARGE_SEGMENT : SMALL_SEGMENT; }

  // Maps more pages at the end of the stream's segment, as with expandable_segments:True.
  Block* grow(int64_t size, c10::StreamId stream, bool large) {
    Block*& tail = tails[{stream, large}];
    bool extends = tail && !tail->allocated;
    int64_t length = round_up(size - (extends ? tail->size : 0), page(large));
    if (!can_reserve(length)) return nullptr;
    count_reserved(length, large);
    if (extends) {
      history.add(SEGMENT_MAP, tail->address + tail->size, length, stream, stack_of_call);
      unused(*tail).erase(tail);
      tail->size += length;
      return tail;
    }
    constexpr int64_t ADDRESSES = LARGE_SEGMENT << 16;  // a multiple of both pages
    int64_t start = round_up(next_address, LARGE_SEGMENT);
    if (!tail) next_address = start + ADDRESSES;
    int64_t address = tail ? tail->address + tail->size : start;
    history.add(SEGMENT_MAP, address, length, stream, stack_of_call);
    Block* block = add({address, length, 0, stream, large, true, false, tail, nullptr});
    if (tail) tail->next = block;
    return tail = block;
  }

  // Returns what the block has beyond `size` to its pool.
  void split(Block* block, int64_t size) {
    int64_t rest = block->size - size;
    bool splits = block->large && !block->expandable ? may_split(size) && rest > SMALL : rest >= BLOCK;
    if (!caching || !splits) return;
    Block remainder{block->address + size, rest, 0, block->stream, block->large, block->expandable, false, block,
                    block->next};
    Block* remaining = add(remainder);
    if (block->next) block->next->previous = remaining;
    block->next = remaining;
    block->size = size;
    if (auto tail = tails.find({block->stream, block->large}); tail != tails.end() && tail->second == block)
      tail->second = remaining;
    if (is_inactive_split(*remaining)) count_inactive(*remaining, 1);
    unused(*remaining).insert(remaining);
  }

  void merge(Block* block, Block* neighbour) {
    unused(*neighbour).erase(neighbour);
    if (is_inactive_split(*neighbour)) count_inactive(*neighbour, -1);
    blocks.erase(block), blocks.erase(neighbour);
    if (neighbour == block->previous) {
      block->address = neighbour->address;
      if ((block->previous = neighbour->previous)) block->previous->next = block;
    } else if ((block->next = neighbour->next)) {
      block->next->previous = block;
    }
    block->size += neighbour->size;
    for (auto& [key, tail] : tails)
      if (tail == neighbour) tail = block;
    blocks.insert(block);
    delete neighbour;
  }

  // Returns a whole segment to the GPU.
  void release(Block* block) {
    history.add(SEGMENT_FREE, block->address, block->size, block->stream);
    count_reserved(-block->size, block->large);
    count(stats.segment, block->large, -1);
    if (caching && !may_split(block->size)) stats.oversize_segments.decrease(1);
    blocks.erase(block);
    delete block;
  }

  // Returns the whole pages of an unused block of a segment that grows; what precedes and follows them stays.
  void unmap(Block* block) {
    int64_t unit = page(block->large), end = block->address + block->size;
    int64_t from = round_up(block->address, unit), to = end / unit * unit;
    if (from >= to) return;
    history.add(SEGMENT_UNMAP, from, to - from, block->stream);
    count_reserved(from - to, block->large);
    Pool& pool = unused(*block);
    pool.erase(block);
    Block* after = block->next;
    if (to < end) {
      after = add({to, end - to, 0, block->stream, block->large, true, false, nullptr, block->next});
      pool.insert(after);
    }
    if (after && after != block->next && block->next) block->next->previous = after;
    if (after) after->previous = nullptr;
    Block* before = block->previous;
    if (block->address < from) {
      block->size = from - block->address, block->next = nullptr;
      pool.insert(before = block);
    } else {
      if (before) before->next = nullptr;
      blocks.erase(block);
    }
    if (auto tail = tails.find({block->stream, block->large}); tail->second == block && !after) tail->second = before;
    if (before != block) delete block;
  }

  void release_cached() {
    for (Pool& pool : pools)
      for (Block* block : std::vector<Block*>(pool.begin(), pool.end()))
        if (block->expandable) unmap(block);
        else if (!block->is_split()) pool.erase(block), release(block);
  }

  // With max_split_size_mb: returns cached blocks that may not be split, the largest first, until they suffice.
  bool release_oversize(int64_t size, c10::StreamId stream, bool large) {
    if (AllocatorConfig::max_split_size() == std::numeric_limits<size_t>::max()) return false;
    int64_t needed = std::max<int64_t>(size, AllocatorConfig::max_split_size()), released = 0;
    Block wanted{0, needed, 0, stream, large, false, false, nullptr, nullptr};
    Pool& pool = pools[large];
    auto found = pool.lower_bound(&wanted);
    if (found == pool.end() || (*found)->stream != stream) {
      while (released < needed && found != pool.begin()) {
        --found;
        if ((*found)->stream != stream || may_split((*found)->size) || (*found)->is_split()) break;
        Block* block = *found;
        released += block->size;
        found = pool.erase(found);
        release(block);
      }
      return released >= needed;
    }
    Block* block = *found;
    if (block->is_split()) return false;
    pool.erase(found);
    release(block);
    return true;
  }
};
}  // namespace xdevice
