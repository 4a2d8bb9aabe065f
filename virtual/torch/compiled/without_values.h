// What an operation does while nothing is computed. It is computed nevertheless if all that it reads has values and all
// that it writes is small: masks, lengths and indices that come from the host decide on shapes. Else its results have
// shapes, by PyTorch's kernels for meta tensors, and no values.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/count_nonzero.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/uniform_native.h>

#include "plan.h"

namespace xdevice::values {
template <class F>
void for_each_tensor(const IValue& v, F call) {
  if (auto* t = tensor_in(v)) call(*t);
  if (v.isList())
    for (const IValue& each : v.toListRef())
      if (auto* t = tensor_in(each)) call(*t);
}

template <class F>
void for_each_storage(const Tensor& t, F call) {
  if (t.layout() == kSparse) {  // by its own fields: its methods are operations, which would ask here again
    auto* impl = coo(t.unsafeGetTensorImpl());
    for (const Tensor& part : {impl->indices(), impl->values()}) call(*part.storage().unsafeGetStorageImpl());
  } else if (is_sparse(t)) {
    auto* impl = compressed(t.unsafeGetTensorImpl());
    for (const Tensor& part : {impl->compressed_indices(), impl->plain_indices(), impl->values()})
      call(*part.storage().unsafeGetStorageImpl());
  } else if (t.has_storage()) {
    call(*t.storage().unsafeGetStorageImpl());
  }
}

inline bool exist(const Tensor& t) {
  bool all = true;
  if (t.device().type() == TYPE)
    for_each_storage(t, [&](const c10::StorageImpl& s) {
      if (auto* allocation = allocation_of(&s)) all &= allocation->has_values;
    });
  return all;
}

inline void set(const Tensor& t, bool value) {
  if (t.device().type() == TYPE)
    for_each_storage(t, [&](const c10::StorageImpl& s) {
      if (auto* allocation = allocation_of(&s)) allocation->has_values = value;
    });
}

// Whether the tensor is all of its storage.
inline bool is_whole(const Tensor& t) { return t.layout() == kStrided && t.nbytes() == t.storage().nbytes(); }

inline bool is_computed(const Plan& plan, const IValue* arguments) {
  if (computing || plan.reads == Plan::SIZES) return true;
  bool all = true;
  for (int i = 0; i < plan.arguments; ++i) {
    const bool written = plan.written >> i & 1;
    for_each_tensor(arguments[i], [&](const Tensor& t) {
      all &= (written && plan.overwrites && is_whole(t)) || exist(t);
      if (written && t.layout() == kStrided) all &= t.nbytes() <= LARGE;
    });
  }
  return all;
}

inline std::atomic<bool> has_read_integer = false;  // as 0

// Tells Python that the program reads values that were not computed. Those that decide on what follows end it.
inline void read(const c10::OperatorHandle& op, bool decides, bool is_integer = false) {
  if (is_integer) has_read_integer = true;
  Stack stack{op.schema().name(), decides, is_integer};
  call_python("read_without_values", stack);
}

// A mask among indices becomes as many indices as it has true elements; a mask without values ends the program.
inline void count_masks(const c10::OperatorHandle& op, IValue& indices) {
  if (!indices.isList()) return;
  c10::List<std::optional<Tensor>> counted;
  for (const IValue& v : indices.toListRef()) {
    auto* t = tensor_in(v);
    if (!t || (t->scalar_type() != kBool && t->scalar_type() != kByte)) {
      counted.push_back(t ? std::optional(*t) : std::nullopt);
      continue;
    }
    if (!exist(*t)) read(op, true);
    const Tensor mask = t->is_cpu() ? *t : like(*t, host_of(t->storage()), c10::DispatchKey::CPU);
    const int64_t n = mask.count_nonzero().item<int64_t>();
    for (int64_t i = 0; i < std::max<int64_t>(t->dim(), 1); ++i)
      counted.push_back(at::empty({n}, kLong));  // on the CPU, where indices may be
  }
  indices = counted;
}

// A size that was read as 0 makes tensors empty, and what is computed from them. Few programs have empty tensors for
// another reason; these are told to compute, too.
inline void check_size(const c10::OperatorHandle& op, const IValue& result) {
  auto* made = tensor_in(result);
  if (made && !made->numel()) read(op, true);
}

// Sparse tensors have no shapes for meta: how many elements a result stores depends on indices.
inline bool has_sparse(const Plan& plan, const IValue* arguments) {
  bool any = false;
  for (int i = 0; i < plan.arguments; ++i)
    for_each_tensor(arguments[i], [&](const Tensor& t) { any |= is_sparse(t); });
  return any;
}

// Where the shape or the Python value of a result depends on values. Returns whether the operation is done.
inline bool read_values(const c10::OperatorHandle& op, const Plan& plan, Stack* stack, IValue* arguments) {
  if (plan.reads == Plan::NUMBER) {
    const auto type = arguments[0].toTensor().scalar_type();
    read(op, type == kBool, at::isIntegralType(type, false));
    torch::jit::drop(*stack, 1);
    torch::jit::push(*stack, at::isFloatingType(type) ? at::Scalar(0.) : at::Scalar(0));
    return true;
  }
  if (plan.indices >= 0 && op.schema().name() == "aten::index") count_masks(op, arguments[plan.indices]);
  else if (plan.reads == Plan::SHAPE || has_sparse(plan, arguments)) read(op, true);
  return false;
}

// What an operation writes has values, if it is computed and overwrites all of it; and has none, if it is not computed.
inline void note_written(const c10::OperatorHandle& op, const Plan& plan, const IValue* arguments, bool computes) {
  if (computes && !plan.overwrites) return;
  for (int i = 0; i < plan.arguments; ++i)
    if (plan.written >> i & 1) for_each_tensor(arguments[i], [&](const Tensor& t) {
      if (!computes && t.is_cpu()) {  // the program's own memory
        read(op, false, at::isIntegralType(t.scalar_type(), false));
        AutoDispatchBelowADInplaceOrView below;
        Tensor(t).zero_();
      } else if (!computes || is_whole(t)) {
        set(t, computes);
      }
    });
}

// Values are taken to be finite: what asks for others is answered.
inline std::optional<bool> is_known(const c10::OperatorHandle& op, const IValue* arguments) {
  const std::string& name = op.schema().name();
  if (name == "aten::isnan") return false;
  const bool equal = name == "aten::eq";
  if (!equal && name != "aten::ne") return std::nullopt;
  if (arguments[1].isTensor() && arguments[1].toTensor().is_same(arguments[0].toTensor())) return equal;
  if (arguments[1].isDouble() && std::isinf(arguments[1].toDouble())) return !equal;
  return std::nullopt;
}

inline void set_known(Tensor& result, bool value) {
  if (value && is_large(result.nbytes())) return;
  if (!is_large(result.nbytes())) memset(result.mutable_data_ptr(), value, result.nbytes());
  set(result, true);
}

// ---- weights and data that are made on the CPU: large ones are not drawn, so that they take no memory ----

inline bool is_left_untouched(const Tensor& t) {
  return is_large(t.nbytes()) && at::isFloatingType(t.scalar_type()) && t.layout() == kStrided;
}

inline Tensor& normal(Tensor& self, double mean, double deviation, std::optional<Generator> generator) {
  return is_left_untouched(self) ? self : at::native::normal_(self, mean, deviation, generator);
}

inline Tensor& uniform(Tensor& self, double from, double to, std::optional<Generator> generator) {
  return is_left_untouched(self) ? self : at::native::uniform_(self, from, to, generator);
}

inline Tensor& copy(Tensor& self, const Tensor& from, bool non_blocking) {
  auto is_zero = [](const Tensor& t) {
    return t.is_cpu() && t.layout() == kStrided && t.is_non_overlapping_and_dense() &&
        untouched::is_zero(t.const_data_ptr(), t.nbytes());
  };
  const bool is_alike = is_left_untouched(self) && self.is_cpu() && self.sizes() == from.sizes();
  if (is_alike && is_zero(from) && is_zero(self)) return self;
  return at::native::copy_(self, from, non_blocking);
}
}  // namespace xdevice::values
