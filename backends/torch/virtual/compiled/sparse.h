// Sparse and nested tensors on virtual GPUs: torch's own classes. The indices and values of sparse ones are virtual
// tensors; the sizes and strides of nested ones stay on the host.
#pragma once
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/DeviceGuard.h>

#include "memory.h"

namespace xdevice {
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
    auto *made = coo(to), *given = coo(from.unsafeGetTensorImpl());
    made->raw_resize_(given->sparse_dim(), given->dense_dim(), given->sizes());
    made->set_indices_and_values_unsafe(part(given->indices()), part(given->values()));
    made->set_coalesced(given->coalesced());
  } else {
    auto* given = compressed(from.unsafeGetTensorImpl());
    compressed(to)->set_member_tensors(
        part(given->compressed_indices()), part(given->plain_indices()), part(given->values()), given->sizes());
  }
  to->set_allow_tensor_metadata_change(allowed);
}

// A sparse tensor like another, on that device.
template <class F>
Tensor sparse_like(const Tensor& from, c10::DispatchKey dense, Device device, F part) {
  auto kind = from.layout() == kSparse ? c10::DispatchKey::Sparse : c10::DispatchKey::SparseCsr;
  DispatchKeySet keys(c10::toRuntimePerBackendFunctionalityKey(kind, c10::toBackendComponent(dense)));
  c10::DeviceGuard guard(device);  // torch makes a sparse tensor on the current device
  Tensor made = from.layout() == kSparse
      ? at::detail::make_tensor<SparseTensorImpl>(keys, from.dtype())
      : at::detail::make_tensor<SparseCsrTensorImpl>(keys, device, from.layout(), from.dtype());
  fill_sparse(made.unsafeGetTensorImpl(), from, part);
  return made;
}

// A nested tensor with the sizes and strides of another, in that storage.
inline Tensor nested_like(const Tensor& from, Storage storage, c10::DispatchKey dense) {
  auto* given = at::native::get_nested_tensor_impl(from);
  auto key = c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::NestedTensor, c10::toBackendComponent(dense));
  return at::detail::make_tensor<at::native::NestedTensorImpl>(std::move(storage),
      DispatchKeySet(key) | c10::autograd_nested, from.dtype(), given->get_nested_sizes(), given->get_nested_strides(),
      given->get_storage_offsets());
}

// What torch computes from sizes and strides, or for tensors on any device: it takes virtual tensors as they are.
constexpr const char* ON_NESTED_SIZES[] = {"_nested_tensor_size", "_nested_tensor_strides",
    "_nested_tensor_storage_offsets", "_to_copy", "empty_like", "is_pinned", "_pin_memory"};
constexpr const char* TO_NESTED[] = {"_nested_view_from_buffer", "_nested_from_padded"};
}  // namespace xdevice
