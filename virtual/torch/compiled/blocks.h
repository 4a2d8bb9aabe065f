// The blocks of memory of a virtual GPU, the pools that keep those that are not in use, and their sizes.
//
// PYTORCH_CUDA_ALLOC_CONF is read by torch's own parser.
#pragma once
#include <c10/core/AllocatorConfig.h>

#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "history.h"

namespace xdevice {
using AllocatorConfig = c10::CachingAllocator::AcceleratorAllocatorConfig;

constexpr int64_t UNLIMITED = std::numeric_limits<int64_t>::max();
constexpr int64_t MIB = 1 << 20;
constexpr int64_t BLOCK = 512;               // sizes are multiples of this
constexpr int64_t SMALL = MIB;               // larger blocks are in the pool of large blocks
constexpr int64_t SMALL_SEGMENT = 2 * MIB;
constexpr int64_t SEGMENT_OF_ITS_OWN = 10 * MIB;  // blocks of less than this share segments

inline int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

struct BlockPool;

struct Block {
  int64_t address, size, requested;
  c10::StreamId stream;
  BlockPool* pool;
  bool expandable, allocated;
  Block *previous, *next;            // the neighbours in the segment
  int64_t number = 0;                // of the allocation, on this GPU
  int64_t stack = NO_STACK;          // of the allocation
  int64_t segment_stack = NO_STACK;  // of the allocation of the segment; where PyTorch keeps it
  int64_t searches = 0;              // of the pool until the block was put into it
  Block* on_large_gpu = nullptr;     // the same allocation on a GPU without a limit, while peaks are recorded
  bool is_split() const { return previous || next; }
};

struct ByAddress {
  bool operator()(const Block* a, const Block* b) const { return a->address < b->address; }
};

struct BySize {  // within a stream
  auto key(const Block* b) const { return std::make_tuple(b->stream, b->size, b->address); }
  bool operator()(const Block* a, const Block* b) const { return key(a) < key(b); }
};

struct MemoryPool;

// The blocks of at most SMALL bytes of a pool, or the larger ones, that are not allocated.
struct BlockPool {
  MemoryPool& owner;
  const bool large;
  std::set<Block*, BySize> unused;
  std::map<c10::StreamId, Block*> tails;  // the last blocks of segments that can grow
  int64_t searches = 0;                   // for an unused block, while garbage is collected

  void put(Block* block) {
    block->searches = searches;
    unused.insert(block);
  }
  int64_t age(const Block* block) const { return searches - block->searches; }
  std::vector<Block*> copy() const { return {unused.begin(), unused.end()}; }
};

// The pool of all programs, or one that a program has made.
struct MemoryPool {
  PoolId id = DEFAULT_POOL;
  bool splits = true;      // segments
  bool overflows = false;  // an allocation in no pool may use it when the memory is full
  int uses = 1;            // segments of a pool without a use are released with the cache
  BlockPool small{*this, false}, large{*this, true};
  int64_t reserved = 0;

  BlockPool& of(int64_t size) { return size <= SMALL ? small : large; }
};

inline int64_t rounded(int64_t size) {
  if (size < BLOCK) return BLOCK;
  int64_t divisions = AllocatorConfig::roundup_power2_divisions(size);
  if (divisions <= 1 || size <= BLOCK * divisions) return round_up(size, BLOCK);
  int64_t power = 1;
  while (power * 2 <= size) power *= 2;
  return round_up(size, std::max<int64_t>(power / divisions, 1));
}

inline bool may_split(int64_t size) { return uint64_t(size) < AllocatorConfig::max_split_size(); }

// 20 MiB, or large_segment_size_mb, which early versions do not have.
template <class Config = AllocatorConfig>
int64_t large_segment() {
  if constexpr (requires { Config::large_segment_size(); }) return Config::large_segment_size();
  return 20 * MIB;
}

inline int64_t length_of_segment(int64_t size) {
  if (size <= SMALL) return SMALL_SEGMENT;
  return size < SEGMENT_OF_ITS_OWN ? large_segment() : round_up(size, SMALL_SEGMENT);
}

inline int64_t page(bool large) { return large ? large_segment() : SMALL_SEGMENT; }
}  // namespace xdevice
