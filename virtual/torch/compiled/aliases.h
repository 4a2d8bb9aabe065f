// Tensors of torch's own classes in the memory of others: on the host in place of virtual ones, and the reverse.
#pragma once
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

#include "memory.h"

namespace xdevice {
// The tensor in an argument, if there is one.
inline const Tensor* tensor_in(const IValue& v) {
  return v.isTensor() && v.toTensor().defined() ? &v.toTensor() : nullptr;
}

// A tensor with the sizes, strides, dtype and lazy bits of another, in that storage.
inline Tensor like(const Tensor& t, Storage storage, c10::DispatchKey key) {
  Tensor tensor = at::detail::make_tensor<TensorImpl>(std::move(storage), DispatchKeySet(key), t.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (t.is_conj()) impl->_set_conj(true);
  if (t.is_neg()) impl->_set_neg(true);
  return tensor;
}

// The indices and values of sparse tensors are virtual; the sizes and strides of nested ones stay on the host.
inline bool is_sparse(const Tensor& t) {
  auto layout = t.layout();
  return layout == kSparse || layout == kSparseCsr || layout == kSparseCsc || layout == kSparseBsr || layout == kSparseBsc;
}

inline SparseTensorImpl* coo(c10::TensorImpl* t) { return static_cast<SparseTensorImpl*>(t); }
inline SparseCsrTensorImpl* compressed(c10::TensorImpl* t) { return static_cast<SparseCsrTensorImpl*>(t); }

// Gives a sparse tensor the sizes of another of its layout, and the parts that `part` makes of the other's.
template <class F>
void fill_sparse(c10::TensorImpl* to, const Tensor& from, F part) {
  bool allowed = to->allow_tensor_metadata_change();
  to->set_allow_tensor_metadata_change(true);
  if (from.layout() == kSparse) {
    auto *target = coo(to), *source = coo(from.unsafeGetTensorImpl());
    target->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
    target->set_indices_and_values_unsafe(part(source->indices()), part(source->values()));
    target->set_coalesced(source->coalesced());
  } else {
    auto* source = compressed(from.unsafeGetTensorImpl());
    compressed(to)->set_member_tensors(
        part(source->compressed_indices()), part(source->plain_indices()), part(source->values()), source->sizes());
  }
  to->set_allow_tensor_metadata_change(allowed);
}

// A sparse tensor like another, on that device.
template <class F>
Tensor sparse_like(const Tensor& from, c10::DispatchKey dense, Device device, F part) {
  auto kind = from.layout() == kSparse ? c10::DispatchKey::Sparse : c10::DispatchKey::SparseCsr;
  DispatchKeySet keys(c10::toRuntimePerBackendFunctionalityKey(kind, c10::toBackendComponent(dense)));
  c10::DeviceGuard guard(device);  // torch makes a sparse tensor on the current device
  Tensor tensor = from.layout() == kSparse
      ? at::detail::make_tensor<SparseTensorImpl>(keys, from.dtype())
      : at::detail::make_tensor<SparseCsrTensorImpl>(keys, device, from.layout(), from.dtype());
  fill_sparse(tensor.unsafeGetTensorImpl(), from, part);
  return tensor;
}

// A nested tensor with the sizes and strides of another, in that storage.
inline Tensor nested_like(const Tensor& from, Storage storage, c10::DispatchKey dense) {
  auto* source = at::native::get_nested_tensor_impl(from);
  auto key = c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::NestedTensor, c10::toBackendComponent(dense));
  return at::detail::make_tensor<at::native::NestedTensorImpl>(std::move(storage),
      DispatchKeySet(key) | c10::autograd_nested, from.dtype(), source->get_nested_sizes(), source->get_nested_strides(),
      source->get_storage_offsets());
}
}  // namespace xdevice
