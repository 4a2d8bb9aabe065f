// The temporary memory of CUDA's kernels that may exceed a small part of what is allocated: the most that it may be. It
// is not allocated here: `xdevice fits` adds it to the most that a program may need.
#pragma once
#include "plan.h"

namespace xdevice::temporaries {
// Sorting: CUB sorts copies of keys and of 64-bit indices. Indices: those of tensors are sorted in the same way.
// Transforms: cuFFT's documentation gives 8 times the elements as the worst case. Linear algebra: an assumption.
// Convolutions: cuDNN's kernels for tensor cores read and write copies in the order NHWC.
inline int64_t factor(Plan::Temporary kind) {
  switch (kind) {
    case Plan::SORTING: return 2;
    case Plan::INDICES: return 4;
    case Plan::TRANSFORMS: return 8;
    case Plan::LINEAR_ALGEBRA: return 3;
    case Plan::CONVOLUTIONS: return 1;
    default: return 0;
  }
}

// The bytes of a tensor that is sorted or transformed, or of its indices.
inline int64_t bytes(const Plan& plan, const IValue& value) {
  int64_t sum = 0;
  auto add = [&](const Tensor& t) {
    if (!t.defined() || is_sparse(t)) return;
    if (plan.temporary != Plan::INDICES || at::isIntegralType(t.scalar_type(), true)) sum += t.nbytes();
  };
  if (auto* t = tensor_in(value)) add(*t);
  if (value.isList())
    for (const IValue& each : value.toListRef())
      if (auto* t = tensor_in(each)) add(*t);
  return sum;
}

inline int64_t bytes(const Plan& plan, const IValue* begin, const IValue* end) {
  int64_t sum = 0;
  for (; begin != end; ++begin) sum += bytes(plan, *begin);
  return sum;
}

// Whether the temporary memory of the operation is to be noted.
inline bool is_noted(const Plan& plan) { return C10_UNLIKELY(plan.temporary != Plan::SMALL) && line_of != nullptr; }

inline void note(DeviceIndex index, const Plan& plan, int64_t bytes) {
  records[index].needed(plan.temporary, reserved(index), factor(plan.temporary) * bytes);
}
}  // namespace xdevice::temporaries
