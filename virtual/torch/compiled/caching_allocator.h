// The accounting of CUDA's caching allocator, as PyTorch documents it: blocks of 512 bytes, pools of small and of large
// blocks, segments that are split and stay cached. Nothing is stored at its addresses: a tensor's values are in the
// host's memory, which has no cache.
//
// Memory that only waits for another stream does not exist here, since an operation is complete when its call returns:
// record_stream delays nothing.
#pragma once
#include <memory>
#include <mutex>
#include <optional>

#include "segments.h"
#include "threads.h"

namespace xdevice {
class CachingAllocator : Segments {
 public:
  using Segments::allowed, Segments::caching, Segments::limit, Segments::share, Segments::soft_limit;

  // Returns a null pointer if a limit does not allow it.
  Block* allocate(int64_t requested, c10::StreamId stream, int64_t stack = NO_STACK) {
    std::lock_guard<std::mutex> one(lock);
    stack_of_call = stack;
    int64_t size = caching ? rounded(requested) : requested;
    BlockPool& pool = caching ? pool_of(stream).of(size) : main.large;
    Block* block = caching ? find(size, stream, pool) : reserve(size, stream, pool);
    if (!block) return ++stats.num_ooms, nullptr;
    split(block, size);
    block->allocated = true;
    block->requested = requested;
    block->number = ++last_number;
    block->stack = stack;
    note(ALLOC, *block, requested, stack);
    stats.count_allocated(*block, 1, is_oversize(block->size));
    return block;
  }

  // Memory of the GPU that is not the allocator's.
  void take_besides(int64_t bytes) {
    std::lock_guard<std::mutex> one(lock);
    share.take(bytes, UNLIMITED);
  }

  void free(Block* block, int64_t stack = NO_STACK) {
    std::lock_guard<std::mutex> one(lock);
    stack_of_call = stack;
    for (auto action : {FREE_REQUESTED, FREE_COMPLETED})  // at once: operations are complete when their calls return
      note(action, *block, block->requested, stack != NO_STACK ? stack : block->stack);
    stats.count_allocated(*block, -1, is_oversize(block->size));
    block->allocated = false;
    block->requested = 0;
    block->stack = NO_STACK;
    if (!caching) return release(block);
    for (Block* neighbour : {block->previous, block->next})
      if (neighbour && !neighbour->allocated) merge(block, neighbour);
    if (is_inactive_split(*block)) stats.count_inactive(*block, 1);
    block->pool->put(block);
  }

  // Releases what is cached; for a pool of the program's own, only what is cached in it.
  void empty_cache(PoolId id = DEFAULT_POOL, int64_t stack = NO_STACK) {
    std::lock_guard<std::mutex> one(lock);
    stack_of_call = stack;
    release_cached(id);
  }

  // ---- pools of the program's own ----

  void use_pool(PoolId id) {
    std::lock_guard<std::mutex> one(lock);
    auto& pool = pools[id];
    if (!pool) pool.reset(new MemoryPool{id});
    else ++pool->uses;
  }

  void release_pool(PoolId id) {
    std::lock_guard<std::mutex> one(lock);
    if (auto* pool = find_pool(id)) --pool->uses;
  }

  int uses_of_pool(PoolId id) {
    std::lock_guard<std::mutex> one(lock);
    auto* pool = find_pool(id);
    return pool ? pool->uses : 0;
  }

  void configure_pool(PoolId id, bool splits, bool overflows) {
    std::lock_guard<std::mutex> one(lock);
    if (auto* pool = find_pool(id)) pool->splits = splits, pool->overflows = overflows;
  }

  // From now on, allocations of this thread, or on this stream, are made in the pool. Returns whether that is new.
  bool begin_pool(PoolId id, bool of_thread, c10::StreamId stream) {
    std::lock_guard<std::mutex> one(lock);
    for (auto& route : routes)
      if (route.id == id) return false;
    Route route{id, stream, std::nullopt};
    if (of_thread) route.thread = current_thread();
    routes.push_back(route);
    return true;
  }

  bool end_pool(PoolId id) {
    std::lock_guard<std::mutex> one(lock);
    return std::erase_if(routes, [&](auto& route) { return route.id == id; });
  }

  int64_t unused_in_pools() {
    std::lock_guard<std::mutex> one(lock);
    int64_t bytes = 0;
    for (auto& [id, pool] : pools)
      for (auto* each : {&pool->small, &pool->large})
        for (Block* block : each->unused) bytes += block->size;
    return bytes;
  }

  // ---- figures and history ----

  void forget_history() {
    std::lock_guard<std::mutex> one(lock);
    history.events.clear();
  }

  void out_of_memory(int64_t free, int64_t size, c10::StreamId stream) {
    std::lock_guard<std::mutex> one(lock);
    history.add({OOM, free, rounded(size), stream, stack_of_call, pool_of(stream).id});
  }

  // The events so far. That they were asked for is an event, too.
  std::deque<MemoryEvent> snapshot(PoolId id) {
    std::lock_guard<std::mutex> one(lock);
    auto events = history.events;
    int64_t active = 0;
    for (const Block* block : blocks)
      if (block->allocated && (id == DEFAULT_POOL || block->pool->owner.id == id)) active += block->size;
    history.add({SNAPSHOT, 0, active, 0, NO_STACK, id});
    return events;
  }

  c10::CachingDeviceAllocator::DeviceStats get_stats() {
    std::lock_guard<std::mutex> one(lock);
    auto copy = stats;
    auto most = AllocatorConfig::max_split_size();
    copy.max_split_size = most == std::numeric_limits<size_t>::max() ? -1 : int64_t(most);
    return copy;
  }

  void reset_peak() {
    std::lock_guard<std::mutex> one(lock);
    stats.reset_peak();
  }

  void reset_accumulated() {
    std::lock_guard<std::mutex> one(lock);
    stats.reset_accumulated();
  }

  // Calls a function for each block, in the order of addresses; a block without a previous one begins a segment.
  template <class F>
  void for_each_block(F call) {
    std::lock_guard<std::mutex> one(lock);
    for (const Block* block : blocks) call(*block);
  }

 private:
  struct Route {  // of allocations into a pool
    PoolId id;
    c10::StreamId stream;
    std::optional<Thread> thread;
    bool applies(c10::StreamId wanted) const { return thread ? *thread == current_thread() : stream == wanted; }
  };

  std::mutex lock;
  MemoryPool main;
  std::map<PoolId, std::unique_ptr<MemoryPool>> pools;  // of the program's own
  std::vector<Route> routes;                            // the last one that applies counts
  int64_t last_number = 0;                              // of an allocation

  MemoryPool* find_pool(PoolId id) {
    auto found = pools.find(id);
    return found == pools.end() ? nullptr : found->second.get();
  }

  MemoryPool& pool_of(c10::StreamId stream) {
    for (auto route = routes.rbegin(); route != routes.rend(); ++route)
      if (auto* pool = find_pool(route->id); pool && route->applies(stream)) return *pool;
    return main;
  }

  // ---- finding a block ----

  Block* find(int64_t size, c10::StreamId stream, BlockPool& pool) {
    if (Block* block = cached(size, stream, pool)) return block;
    if (collects_garbage()) collect_garbage();
    if (Block* block = reserve(size, stream, pool)) return block;
    if (Block* block = from_overflow(size, stream, pool)) return block;
    if (release_oversize(size, stream, pool))
      if (Block* block = reserve(size, stream, pool)) return block;
    if (routes.empty()) {
      release_cached(DEFAULT_POOL);
      ++stats.num_alloc_retries;
      if (Block* block = reserve(size, stream, pool)) return block;
    }
    auto soft = std::exchange(soft_limit, UNLIMITED);
    Block* block = soft < limit ? reserve(size, stream, pool) : nullptr;
    soft_limit = soft;
    return block;
  }

  // The smallest unused block of the stream that is large enough. A block that may not be split serves similar sizes.
  Block* cached(int64_t size, c10::StreamId stream, BlockPool& pool) {
    if (collects_garbage()) ++pool.searches;
    Block wanted{0, size, 0, stream, &pool, false, false, nullptr, nullptr};
    auto found = pool.unused.lower_bound(&wanted);
    if (found == pool.unused.end() || (*found)->stream != stream) return nullptr;
    Block* block = *found;
    if (may_split(size) && !may_split(block->size)) return nullptr;
    int64_t similar = size + AllocatorConfig::max_non_split_rounding_size();
    if (!may_split(size) && block->size >= similar) return nullptr;
    take(block);
    return block;
  }

  // A block of a pool that the program offers for the case that the memory is full.
  Block* from_overflow(int64_t size, c10::StreamId stream, const BlockPool& pool) {
    if (&pool.owner != &main) return nullptr;
    for (auto& [id, each] : pools)
      if (each->overflows)
        if (Block* block = cached(size, stream, each->of(size))) return block;
    return nullptr;
  }

  // Segments without an allocated block; of a pool of the program's own when nothing uses it any more.
  void release_cached(PoolId id) {
    if (id == DEFAULT_POOL && routes.empty()) {
      ++stats.num_sync_all_streams;
      release_all(main.large), release_all(main.small);
    }
    for (auto each = pools.begin(); each != pools.end();) {
      MemoryPool& pool = *each->second;
      bool releases = pool.uses == 0 && (id == DEFAULT_POOL || id == each->first);
      if (releases && id != DEFAULT_POOL) ++stats.num_sync_all_streams;
      if (releases) release_all(pool.small), release_all(pool.large);
      each = releases && pool.reserved == 0 ? pools.erase(each) : std::next(each);
    }
  }

  // With max_split_size_mb: returns cached blocks that may not be split, the largest first, until they suffice.
  bool release_oversize(int64_t size, c10::StreamId stream, BlockPool& pool) {
    if (AllocatorConfig::max_split_size() == std::numeric_limits<size_t>::max()) return false;
    int64_t needed = std::max<int64_t>(size, AllocatorConfig::max_split_size()), released = 0;
    Block wanted{0, needed, 0, stream, &pool, false, false, nullptr, nullptr};
    auto& unused = pool.unused;
    auto found = unused.lower_bound(&wanted);
    if (found != unused.end() && (*found)->stream == stream) {
      if ((*found)->is_split()) return false;
      release_unused(*found);
      return true;
    }
    while (released < needed && found != unused.begin()) {
      Block* block = *--found;
      if (block->stream != stream || may_split(block->size) || block->is_split()) break;
      released += block->size;
      found = unused.erase(found);
      release(block);
    }
    return released >= needed;
  }

  // Whether garbage_collection_threshold applies: the program must have set a fraction of the memory, too.
  bool collects_garbage() const { return allowed != UNLIMITED && AllocatorConfig::garbage_collection_threshold() > 0; }

  // Returns the large segments that have been unused for longer than the average, again and again until less is
  // reserved than the threshold allows.
  void collect_garbage() {
    BlockPool& pool = main.large;
    int64_t excess = reserved() - int64_t(AllocatorConfig::garbage_collection_threshold() * double(allowed));
    int64_t ages = 0, count = 0, before = -1;
    for (const Block* block : pool.unused)
      if (!block->is_split()) ages += pool.age(block), ++count;
    while (excess > 0 && count > 0 && count != before) {
      double average = double(ages) / count;
      before = count;
      for (Block* block : pool.copy()) {
        if (block->is_split() || block->expandable || pool.age(block) < average) continue;
        excess -= block->size, ages -= pool.age(block), --count;
        release_unused(block);
      }
    }
  }
};
}  // namespace xdevice
