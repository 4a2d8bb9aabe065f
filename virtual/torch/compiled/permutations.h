// Permutations, as CUDA's kernels draw them: indices sorted by random keys, of as few bits as make
// equal keys unlikely.
#pragma once
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty_like.h>

#include "random.h"
#include "sorting.h"

namespace xdevice::random {
using philox::Item;
using philox::Layout;
using philox::Packed;

// ---- the keys ----

// The key as an unsigned number of so many bits, from the number that is drawn. torch draws keys
// of 32 or 64 bits by random_(lowest, highest), which leaves the highest out.
template <class Key>
uint64_t key_of(uint64_t number, int bits) {
  constexpr uint64_t RANGE = std::numeric_limits<Key>::max();
  constexpr auto LOWEST = std::numeric_limits<std::make_signed_t<Key>>::min();
  const Key key = Key(number % RANGE + int64_t(LOWEST));
  const bool has_all_bits = bits == sizeof(Key) * 8;
  if (has_all_bits) return key ^ Key(LOWEST);  // it is sorted as a signed number
  return key & ((Key(1) << bits) - 1);
}

template <class Key, class Source, class T>
void draw_items(int64_t n, int bits, const Start& begin, const Layout& layout, T* items) {
  draw(n, begin, Source(), [&](int64_t element, const auto* numbers, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t index = element + k;
      layout.set(items[index], key_of<Key>(numbers[k], bits), uint32_t(index));
    }
  });
}

template <class Key, class Source, class T>
void permute(int64_t n, int bits, const MaybeGenerator& generator, Tensor& result) {
  const Layout layout{philox::bits_in(uint64_t(n - 1))};
  std::unique_ptr<T[]> memory(new T[2 * n]);
  T* items = memory.get();
  T* spare = items + n;
  const Start drawing = start(generator, result.device(), increment_for(n, Source::NUMBERS));
  draw_items<Key, Source>(n, bits, drawing, layout, items);
  const bool any_equal = sort_by_keys(items, spare, n, bits, layout);
  const Start shuffling = start(generator, result.device(), n);
  if (any_equal) shuffle_equal(items, n, shuffling, layout);
  AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, result.scalar_type(), "randperm_out_cuda", [&] {
    auto* out = result.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<scalar_t>(layout.index(items[i]));
  });
}

inline Tensor& permutation_out(int64_t n, MaybeGenerator generator, Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(n <= std::numeric_limits<int>::max(),
      "randperm of tensors larger than INT_MAX is not supported yet in pytorch");
  at::native::check_supported_max_int_with_precision(n, result);
  result.resize_({n});
  if (!n) return result;
  Tensor out = result;
  if (!result.is_contiguous()) out = at::empty_like(result, MemoryFormat::Contiguous);
  const int bits = philox::key_bits_for(n);
  const int index_bits = philox::bits_in(uint64_t(n - 1));
  if (bits <= 32 && as_before_2_7) permute<uint32_t, Integers, Packed>(n, bits, generator, out);
  else if (bits <= 32) permute<uint32_t, LongIntegers, Packed>(n, bits, generator, out);
  else if (bits + index_bits > 64) permute<uint64_t, LongIntegers, Item>(n, bits, generator, out);
  else permute<uint64_t, LongIntegers, Packed>(n, bits, generator, out);
  if (!out.is_same(result)) result.copy_(out);
  return result;
}

}  // namespace xdevice::random
