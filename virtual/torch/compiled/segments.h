// The segments of a virtual GPU's memory: how they are reserved, split, merged and released.
#pragma once
#include <vector>

#include "machine.h"
#include "memory_statistics.h"

namespace xdevice {
class Segments {
 protected:
  int64_t limit = UNLIMITED;       // of the bytes reserved
  int64_t allowed = UNLIMITED;     // of them, by the program's own choice
  int64_t soft_limit = UNLIMITED;  // more is reserved only after the cache has been released
  machine::Share share;            // of the machine's GPU, with CUDA's context
  bool caching = true;        // otherwise a block has the size requested, and is returned when it is freed

  std::set<Block*, ByAddress> blocks;
  History history;
  int64_t stack_of_call = NO_STACK;  // of the call that changes something
  MemoryStatistics stats;

  void note(Action action, const Block& block, int64_t size, int64_t stack) {
    history.add({action, block.address, size, block.stream, stack, block.pool->owner.id});
  }

  bool is_oversize(int64_t size) const { return caching && !may_split(size); }

  // Whether the block can neither be used as it is nor be released: the rest of its segment is in use.
  bool is_inactive_split(const Block& block) const { return block.is_split() && !block.expandable; }

  // Removes an unused block from its pool.
  void take(Block* block) {
    block->pool->unused.erase(block);
    if (is_inactive_split(*block)) stats.count_inactive(*block, -1);
  }

  Block* add(const Block& block) {
    Block* added = new Block(block);
    blocks.insert(added);
    return added;
  }

  // A new segment, or more of one that grows; a null pointer if a limit does not allow it.
  Block* reserve(int64_t size, c10::StreamId stream, BlockPool& pool) {
    if (caching && AllocatorConfig::use_expandable_segments()) return grow(size, stream, pool);
    int64_t length = caching ? length_of_segment(size) : size;
    if (!take(pool, length)) return nullptr;
    stats.count_segment(pool, 1, is_oversize(length));
    int64_t address = next_address;
    next_address += round_up(std::max<int64_t>(length, 1), SMALL_SEGMENT);
    Block* block = add({address, length, 0, stream, &pool, false, false, nullptr, nullptr});
    block->segment_stack = stack_of_call;
    note(SEGMENT_ALLOC, *block, length, stack_of_call);
    return block;
  }

  int64_t reserved() const { return stats.reserved_bytes[0].current; }

  // Reserves memory in one of the machine's GPUs. Returns false if a limit does not allow it.
  bool take(BlockPool& pool, int64_t length) {
    int64_t most = std::min(allowed, soft_limit);
    if (length > most || reserved() > most - length || !share.take(length, limit)) return false;
    stats.count_reserved(pool, length);
    return true;
  }

  void give_back(BlockPool& pool, int64_t length) {
    share.give_back(length);
    stats.count_reserved(pool, -length);
  }

  // Maps more pages at the end of the stream's segment, as with expandable_segments:True.
  Block* grow(int64_t size, c10::StreamId stream, BlockPool& pool) {
    Block*& tail = pool.tails[stream];
    bool extends = tail && !tail->allocated;
    int64_t length = round_up(size - (extends ? tail->size : 0), page(pool.large));
    if (!take(pool, length)) return nullptr;
    if (extends) {
      note_mapped(SEGMENT_MAP, *tail, tail->address + tail->size, length);
      pool.unused.erase(tail);
      tail->size += length;
      return tail;
    }
    const int64_t addresses = large_segment() << 16;  // a multiple of both pages
    int64_t start = round_up(next_address, large_segment());
    if (!tail) next_address = start + addresses;
    int64_t address = tail ? tail->address + tail->size : start;
    Block* block = add({address, length, 0, stream, &pool, true, false, tail, nullptr});
    if (tail) tail->next = block;
    else block->segment_stack = stack_of_call;
    note_mapped(SEGMENT_MAP, *block, address, length);
    return tail = block;
  }

  void note_mapped(Action action, const Block& block, int64_t address, int64_t length) {
    history.add({action, address, length, block.stream, stack_of_call, block.pool->owner.id});
  }

  // Returns what the block has beyond `size` to its pool.
  void split(Block* block, int64_t size) {
    int64_t rest = block->size - size;
    BlockPool& pool = *block->pool;
    bool splits = pool.large && !block->expandable ? may_split(size) && rest > SMALL : rest >= BLOCK;
    if (!caching || !splits || !pool.owner.splits) return;
    Block remainder{block->address + size, rest, 0, block->stream, &pool, block->expandable, false, block, block->next};
    Block* remaining = add(remainder);
    std::swap(remaining->segment_stack, block->segment_stack);  // PyTorch splits at the other end
    if (block->next) block->next->previous = remaining;
    block->next = remaining;
    block->size = size;
    if (auto tail = pool.tails.find(block->stream); tail != pool.tails.end() && tail->second == block)
      tail->second = remaining;
    if (is_inactive_split(*remaining)) stats.count_inactive(*remaining, 1);
    pool.put(remaining);
  }

  void merge(Block* block, Block* neighbour) {
    take(neighbour);
    blocks.erase(block), blocks.erase(neighbour);
    if (neighbour == block->previous) {
      block->address = neighbour->address;
      block->segment_stack = neighbour->segment_stack;
      if ((block->previous = neighbour->previous)) block->previous->next = block;
    } else if ((block->next = neighbour->next)) {
      block->next->previous = block;
    }
    block->size += neighbour->size;
    for (auto& [stream, tail] : block->pool->tails)
      if (tail == neighbour) tail = block;
    blocks.insert(block);
    delete neighbour;
  }

  // ---- releasing ----

  // Returns a whole segment, which is in no pool any more, to the GPU.
  void release(Block* block) {
    note(SEGMENT_FREE, *block, block->size, stack_of_call != NO_STACK ? stack_of_call : block->segment_stack);
    give_back(*block->pool, block->size);
    stats.count_segment(*block->pool, -1, is_oversize(block->size));
    blocks.erase(block);
    delete block;
  }

  void release_unused(Block* block) {
    block->pool->unused.erase(block);
    release(block);
  }

  // Returns the whole pages of an unused block of a segment that grows; what precedes and follows them stays.
  void unmap(Block* block) {
    BlockPool& pool = *block->pool;
    int64_t unit = page(pool.large), end = block->address + block->size;
    int64_t from = round_up(block->address, unit), to = end / unit * unit;
    if (from >= to) return;
    note_mapped(SEGMENT_UNMAP, *block, from, to - from);
    give_back(pool, to - from);
    pool.unused.erase(block);
    Block* after = block->next;
    if (to < end) {
      after = add({to, end - to, 0, block->stream, &pool, true, false, nullptr, block->next});
      pool.put(after);
    }
    if (after && after != block->next && block->next) block->next->previous = after;
    if (after) after->previous = nullptr;
    Block* before = block->previous;
    if (block->address < from) {
      block->size = from - block->address, block->next = nullptr;
      pool.put(before = block);
    } else {
      if (before) before->next = nullptr;
      blocks.erase(block);
    }
    if (auto tail = pool.tails.find(block->stream); tail->second == block && !after) tail->second = before;
    if (before != block) delete block;
  }

  // Segments of the pool without an allocated block.
  void release_all(BlockPool& pool) {
    for (Block* block : pool.copy())
      if (block->expandable) unmap(block);
      else if (!block->is_split()) release_unused(block);
  }

 private:
  int64_t next_address = int64_t(0x7f) << 40;
};
}  // namespace xdevice
