// For an operation without a kernel for virtual GPUs, PaddlePaddle copies the inputs to the CPU, runs the CPU's
// kernel, and copies the results back. The plug-in without GNU's C++ library keeps these copies, and does not
// observe them; without_copies.h avoids most of them. No C++ library is used.

#pragma once

#include "replaced.h"

namespace xdevice {

struct Tensor;

struct Place {
  uint64_t words[2];
};

struct Returned {  // a tensor, which the caller destroys
  ~Returned() {}
};

Returned TransDataPlace(const Tensor&, Place) __asm__(TRANS_DATA_PLACE);

Returned TransDataPlace(const Tensor& tensor, Place place) {
  using Move = decltype(&TransDataPlace);
  static Move cached_move = nullptr;
  Move move = __atomic_load_n(&cached_move, __ATOMIC_RELAXED);
  if (!move) {
    move = FunctionNear<Move>(__builtin_return_address(0), TRANS_DATA_PLACE);
    __atomic_store_n(&cached_move, move, __ATOMIC_RELAXED);
  }
  const Unobserved guard;
  return move(tensor, place);
}

void Register(const void*) {}  // no kernels

}  // namespace xdevice
