// The figures of torch.cuda.memory_stats.
#pragma once
#include "blocks.h"

namespace xdevice {
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

struct MemoryStatistics : c10::CachingDeviceAllocator::DeviceStats {
  void count_allocated(const Block& block, int sign, bool oversize) {
    bool is_large = block.pool->large;
    for (auto* stat : {&allocation, &active}) count(*stat, is_large, sign);
    for (auto* stat : {&allocated_bytes, &active_bytes}) count(*stat, is_large, sign * block.size);
    count(requested_bytes, is_large, sign * block.requested);
    if (oversize) count(oversize_allocations, sign);
  }

  void count_inactive(const Block& block, int sign) {
    count(inactive_split, block.pool->large, sign);
    count(inactive_split_bytes, block.pool->large, sign * block.size);
  }

  void count_reserved(BlockPool& pool, int64_t length) {
    count(reserved_bytes, pool.large, length);
    pool.owner.reserved += length;
    if (pool.owner.id != DEFAULT_POOL) count_reserved_by_pool(*this, pool, length);
    ++(length < 0 ? num_device_free : num_device_alloc);
  }

  void count_segment(const BlockPool& pool, int sign, bool oversize) {
    count(segment, pool.large, sign);
    if (oversize) count(oversize_segments, sign);
  }

  void reset_peak() {
    for_each([](auto& stat) { stat.reset_peak(); });
  }

  void reset_accumulated() {
    for_each([](auto& stat) { stat.reset_accumulated(); });
    num_alloc_retries = num_ooms = num_sync_all_streams = num_device_alloc = num_device_free = 0;
  }

 private:
  static void count(c10::CachingAllocator::Stat& stat, int64_t amount) {
    amount >= 0 ? stat.increase(amount) : stat.decrease(-amount);
  }

  static void count(StatArray& stat, bool large, int64_t amount) {
    for (auto kind : {StatType::AGGREGATE, large ? StatType::LARGE_POOL : StatType::SMALL_POOL})
      count(stat[size_t(kind)], amount);
  }

  template <class Stats>  // early versions do not have the figure
  static void count_reserved_by_pool(Stats& stats, const BlockPool& pool, int64_t length) {
    if constexpr (requires { stats.reserved_bytes_by_private_pools; })
      count(stats.reserved_bytes_by_private_pools[pool.owner.id], pool.large, length);
  }

  template <class F>
  void for_each(F change) {
    for (auto* each : {&allocation, &segment, &active, &inactive_split, &allocated_bytes, &reserved_bytes,
             &active_bytes, &inactive_split_bytes, &requested_bytes})
      for (auto& stat : *each) change(stat);
    change(oversize_allocations), change(oversize_segments);
    for_each_by_pool(*this, change);
  }

  template <class Stats, class F>
  static void for_each_by_pool(Stats& stats, F change) {
    if constexpr (requires { stats.reserved_bytes_by_private_pools; })
      for (auto& [id, figures] : stats.reserved_bytes_by_private_pools)
        for (auto& stat : figures) change(stat);
  }
};
}  // namespace xdevice
