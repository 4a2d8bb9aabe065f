// Operations on virtual GPUs: one boxed kernel runs the CPU's kernel on CPU aliases that share the arguments' memory.
#pragma once
#include <ATen/core/LegacyTypeDispatch.h>

#include "mixed.h"
#include "plan.h"
#include "temporaries.h"
#include "workspaces.h"

namespace xdevice {
using torch::jit::Stack;

// One run of an operation.
struct Run {
  const c10::OperatorHandle& op;
  const Plan plan;
  int index = -1;                      // of the virtual GPU that runs it
  std::optional<Device> other_device;  // another device that a tensor is on
  bool has_number = false;             // whether a tensor of no dimensions is on the CPU
  c10::SmallVector<std::pair<Tensor, Tensor>, 6> aliases;  // on the virtual GPU, and on the host
  c10::SmallVector<std::pair<Storage, Storage>, 6> storages;

  Device here() const { return {TYPE, DeviceIndex(index < 0 ? current : index)}; }

  Storage to_host(const Storage& s) {
    for (auto& [v, h] : storages)
      if (v.unsafeGetStorageImpl() == s.unsafeGetStorageImpl()) return h;
    return storages.emplace_back(s, host_of(s)).second;
  }

  Tensor to_host(const Tensor& t, int at) {
    if (!t.defined()) return t;
    for (auto& [v, h] : aliases)
      if (v.is_same(t)) return h;
    Device d = t.device();
    if (d.type() != TYPE) {
      bool written = plan.written >> at & 1;  // a scalar on the CPU counts as a number
      if (!plan.copies && (!d.is_cpu() || written || (t.dim() && at != plan.indices))) other_device = d;
      else if (!t.unsafeGetTensorImpl()->is_wrapped_number()) has_number = true;
      return aliases.emplace_back(t, t).second;
    }
    if (index >= 0 && index != d.index() && !plan.copies) other_device = d;
    else index = d.index();
    Tensor host = t.is_nested() ? nested_like(t, to_host(t.storage()), c10::DispatchKey::CPU)
        : is_sparse(t)
        ? sparse_like(t, c10::DispatchKey::CPU, kCPU, [&](const Tensor& part) { return to_host(part, at); })
        : like(t, to_host(t.storage()), c10::DispatchKey::CPU);
    if (plan.needs_requires_grad && t.requires_grad()) host.set_requires_grad(true);
    return aliases.emplace_back(t, host).second;
  }

  void to_host(IValue& v, int at) {
    if (v.isTensor()) {
      v = to_host(v.toTensor(), at);
    } else if (v.isStorage()) {
      Device d = v.toStorage().device();
      TORCH_CHECK(d == here(), "Attempted to set the storage of a tensor on device \"", here(),
          "\" to a storage on different device \"", d, "\".  This is no longer allowed; the devices must match.");
      v = to_host(v.toStorage());
    } else if (v.isDevice()) {
      if (v.toDevice().type() != TYPE) return;
      if (index < 0) index = v.toDevice().has_index() ? v.toDevice().index() : current;
      check_exists(index);
      v = Device(kCPU);
    } else if (v.isList()) {
      auto list = v.toList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        IValue item = list.get(i);
        if (!item.isTensor() && !item.isNone()) return;  // numbers
        to_host(item, at);
        list.set(i, item);
      }
      v = list;
    }
  }

  // The tensor of the program that has this alias; an undefined tensor if there is none.
  Tensor given(const Tensor& host) const {
    for (auto& [v, h] : aliases)
      if (h.is_same(host)) return v;
    return {};
  }

  // Raises CUDA's error for tensors on several devices.
  [[noreturn]] void raise_mixed(const IValue* arguments) const {
    raise_strict(op.schema().name(), here(), *other_device);
    std::string message = misplaced_message(arguments);
    TORCH_CHECK(message.empty(), message);
    check_as_cuda(arguments);
    raise_different_devices(op.schema().name(), here(), *other_device);
  }

  // The check of devices that CUDA's kernel of dense tensors begins with, where it has one.
  void check_as_cuda(const IValue* arguments) const {
    for (auto& [v, h] : aliases)
      if (is_sparse(v) || v.is_nested()) return;
    if (const std::string& method = method_of(op); !method.empty())
      DeviceCheck{op, method, [&](const Tensor& t) { return given(t); }}.run(arguments);
  }

  // CUDA's message if a generator is a GPU's and all tensors are on the CPU, if a mask is on another device, or if
  // an index is neither on the CPU nor on the device of the indexed tensor. Empty in other cases.
  std::string misplaced_message(const IValue* arguments) const {
    if (index < 0 && plan.generator >= 0 && arguments[plan.generator].isGenerator())
      return c10::str("Expected a '", *other_device, "' generator device but found '",
          arguments[plan.generator].toGenerator().device(), "'");
    if (op.schema().name() == "aten::masked_fill_" && TYPE == c10::DeviceType::CUDA)
      return c10::str("expected self and mask to be on the same device, but got mask on ",
          given(arguments[1].toTensor()).device(), " and self on ", given(arguments[0].toTensor()).device());
    if (plan.indices < 0 || !arguments[plan.indices].isList()) return "";
    Device indexed = given(arguments[0].toTensor()).device();
    for (const IValue& v : arguments[plan.indices].toListRef()) {
      auto* t = tensor_in(v);
      if (Device d = t ? given(*t).device() : indexed; !d.is_cpu() && d != indexed)
        return c10::str("indices should be either on cpu or on the same device as the indexed tensor (", indexed, ")");
    }
    return "";
  }

  Storage to_virtual(const Storage& s) {
    for (auto& [v, h] : storages)
      if (h.unsafeGetStorageImpl() == s.unsafeGetStorageImpl()) return v;
    return storages.emplace_back(virtual_of(s, here().index()), s).first;
  }

  Tensor to_virtual(const Tensor& t) {
    if (!t.defined()) return t;
    if (Tensor v = given(t); v.defined()) return v;
    if (is_sparse(t)) return sparse_like(t, KEY, here(), [&](const Tensor& part) { return to_virtual(part); });
    if (t.is_nested()) return nested_like(t, to_virtual(t.storage()), KEY);
    TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == kStrided && !t.is_quantized(), op.schema().name(),
        " makes a quantized tensor, which is not supported on virtual GPUs; do it on the CPU");
    return like(t, to_virtual(t.storage()), KEY);
  }

  void to_virtual(IValue& v) {
    if (v.isTensor()) {
      v = to_virtual(v.toTensor());
    } else if (v.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : v.toTensorVector()) list.push_back(to_virtual(t));
      v = list;
    }
  }

  // Takes over what the operation has changed besides values: memory that has grown, other sizes.
  void adopt() {
    for (auto& [v, h] : storages)
      if (v.data() != h.data() || v.nbytes() != h.nbytes())
        take_over(v.unsafeGetStorageImpl(), h, v.device().index());
    for (size_t i = 0; i < aliases.size(); ++i) {
      auto *v = aliases[i].first.unsafeGetTensorImpl(), *h = aliases[i].second.unsafeGetTensorImpl();
      if (v == h || aliases[i].first.is_nested()) continue;
      if (is_sparse(aliases[i].second)) {
        fill_sparse(v, aliases[i].second, [&](const Tensor& part) { return to_virtual(part); });
        continue;
      }
      Storage s = to_virtual(h->storage());
      if (s.unsafeGetStorageImpl() != v->unsafe_storage().unsafeGetStorageImpl()) v->set_storage_keep_dtype(s);
      if (v->sizes() != h->sizes() || v->strides() != h->strides() || v->storage_offset() != h->storage_offset())
        v->set_sizes_and_strides(h->sizes(), h->strides(), h->storage_offset());
    }
  }

  // Gives the CPU's kernel a CPU generator in place of the virtual GPU's, and returns that.
  VirtualGenerator& replace_generator(IValue& argument) const {
    std::optional<Generator> given;
    if (!argument.isNone()) given = argument.toGenerator();
    auto& generator = virtual_generator(generator_for(given, here()));
    argument = generator.begin();
    return generator;
  }
};

// For operations that take no generator: the CPU's own has the virtual GPU's state meanwhile.
struct Drawing {
  static inline std::mutex one;
  std::lock_guard<std::mutex> lock{one};
  Generator cpu = at::detail::getDefaultCPUGenerator();
  VirtualGenerator& ours;
  Tensor kept = cpu.get_state();
  explicit Drawing(DeviceIndex index) : ours(virtual_generator(generators[index])) {
    cpu.set_state(ours.begin().get_state());
  }
  ~Drawing() {
    ours.end(cpu);
    cpu.set_state(kept);
  }
};

// The CPU's kernel of the same kind: of dense or of sparse tensors.
inline DispatchKeySet on_cpu(DispatchKeySet keys) {
  return DispatchKeySet(
      c10::toRuntimePerBackendFunctionalityKey(keys.highestFunctionalityKey(), c10::BackendComponent::CPUBit));
}

// Reports an operation that may copy between devices to Python, which raises an error if the copy is forbidden.
inline void report_copies(const c10::OperatorHandle& op, const Plan& plan, const IValue* arguments) {
  if (plan.copies && arguments[0].toTensor().device() == arguments[1].toTensor().device()) return;
  if (plan.size >= 0 && !arguments[plan.size].isNone()) return;
  c10::List<std::optional<Tensor>> tensors;
  auto add = [&](const IValue& v) {
    if (auto* t = tensor_in(v)) tensors.push_back(*t);
    else tensors.push_back(std::nullopt);
  };
  std::optional<bool> flag;  // the first one: non_blocking, accumulate
  for (int i = 0; i < plan.arguments; ++i) {
    if (arguments[i].isBool() && !flag) flag = arguments[i].toBool();
    if (arguments[i].isTensor()) add(arguments[i]);
    else if (i == plan.indices && arguments[i].isList()) for (const IValue& v : arguments[i].toListRef()) add(v);
  }
  Stack stack{op.schema().name(), tensors, flag.value_or(false)};
  call_python("report_copies", stack);
}

// CUDA's error for an operation that no build with CUDA has a kernel for.
inline void refuse_without_kernel(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  TORCH_CHECK_NOT_IMPLEMENTED(!refusing, "Could not run '", name, "' with arguments from the 'CUDA' backend. This could "
      "be because the operator doesn't exist for this backend. '", name, "' is only available for these backends: [CPU]");
}

inline void compute(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  check_usable();
  Run run{op, plan_of(op)};
  const Plan& plan = run.plan;
  if (C10_UNLIKELY(plan.is_only_on_cpu)) refuse_without_kernel(op);
  auto* arguments = stack->data() + (stack->size() - plan.arguments);
  if (C10_UNLIKELY(checks.load(std::memory_order_relaxed) & COPIES) && plan.may_wait) report_copies(op, plan, arguments);
  if (C10_UNLIKELY(plan.alert != nullptr) && plan.alert->applies(arguments[plan.alert_argument]))
    at::Context::alertNotDeterministic(plan.alert->caller);
  std::optional<AsyncCopy> async_copy;
  if (plan.may_wait && (checks & (ASYNC | WARN | REFUSE) || c10::impl::GPUTrace::get_trace()))
    async_copy = wait_as_cuda(plan, arguments);
  if (async_copy && checks & ASYNC) async_copy->before();
  const auto library = workspaces::library_of(plan, arguments);
  const bool notes_temporary = temporaries::is_noted(plan);
  int64_t temporary = 0;
  if (notes_temporary)
    for (int i = 0; i < plan.arguments; ++i) temporary += temporaries::bytes(plan, arguments[i]);
  for (int i = 0; i < plan.arguments; ++i) run.to_host(arguments[i], i);
  if (run.other_device) run.raise_mixed(arguments);
  if (run.has_number && refusing) run.check_as_cuda(arguments);  // some of CUDA's kernels refuse it
  VirtualGenerator* generator = nullptr;
  Generator host_generator;
  if (plan.generator >= 0) {
    generator = &run.replace_generator(arguments[plan.generator]);
    host_generator = arguments[plan.generator].toGenerator();
  }
  {
    AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard full(c10::DispatchKey::AutocastCPU);
    std::optional<Drawing> drawing;
    if (plan.seeded) drawing.emplace(run.here().index());
    std::optional<Wider> wider;
    if (C10_UNLIKELY(plan.special != nullptr)) wider = prepare(*plan.special, op, arguments, plan.arguments, plan.written);
    const auto& kernel = wider && wider->replacement ? *wider->replacement : op;
    naming_out_of_memory([&] { kernel.redispatchBoxed(on_cpu(keys), stack); }, run.here().index());
    if (generator) generator->end(host_generator);
    if (wider) wider->round(*stack, op.schema().returns().size(), [&](const Tensor& t) { return run.given(t).defined(); });
  }
  if (async_copy && checks & ASYNC) async_copy->after();
  if (plan.written) run.adopt();
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    run.to_virtual((*stack)[i]);
    if (notes_temporary) temporary += temporaries::bytes(plan, (*stack)[i]);
  }
  if (notes_temporary) temporaries::note(run.here().index(), plan, temporary);
  workspaces::allocate(run.here().index(), library);
}

// For operations on sizes and strides only: the CPU's code accepts virtual tensors.
template <c10::DispatchKey key = c10::DispatchKey::CPU>
inline void on_sizes(const c10::OperatorHandle& op, Stack* stack) {
  op.redispatchBoxed(DispatchKeySet(key), stack);
}

inline void convolve(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  if (TYPE == c10::DeviceType::CUDA) check_convolution(op, *stack);
  compute(op, keys, stack);
}

inline void only_on_cpu(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  refuse_without_kernel(op);
  compute(op, keys, stack);
}

inline void refuse(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().name(),
      " is for quantized tensors, which are not supported on virtual GPUs; do it on the CPU");
}
}  // namespace xdevice
