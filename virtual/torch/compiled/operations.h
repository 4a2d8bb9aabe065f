// Operations on virtual GPUs: one boxed kernel runs the CPU's kernel on CPU aliases that share the arguments' memory.
#pragma once
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "mixed.h"
#include "plan.h"
#include "temporaries.h"
#include "taken.h"
#include "without_values.h"
#include "workspaces.h"

namespace xdevice {
using torch::jit::Stack;

// One run of an operation.
struct Run {
  const c10::OperatorHandle& op;
  const Plan plan;
  const bool computes = true;          // else the aliases are meta tensors, which have no memory
  int index = -1;                      // of the virtual GPU that runs it
  std::optional<Device> other_device;  // another device that a tensor is on
  bool has_number = false;             // whether a tensor of no dimensions is on the CPU
  c10::SmallVector<std::pair<Tensor, Tensor>, 6> aliases;  // on the virtual GPU, and on the host
  c10::SmallVector<std::pair<Storage, Storage>, 6> storages;

  Device device() const { return {TYPE, DeviceIndex(index < 0 ? current : index)}; }

  Storage to_host(const Storage& s) {
    for (auto& [v, h] : storages)
      if (v.unsafeGetStorageImpl() == s.unsafeGetStorageImpl()) return h;
    if (computes) return storages.emplace_back(s, host_of(s)).second;
    auto* meta = c10::GetAllocator(kMeta);
    Storage empty(Storage::use_byte_size_t(), s.nbytes(), DataPtr(nullptr, kMeta), meta, true);
    return storages.emplace_back(s, empty).second;
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
      // a number can be beside meta tensors
      const bool has_alias = !computes && d.is_cpu() && (t.dim() || plan.copies);
      if (!has_alias) return aliases.emplace_back(t, t).second;
      Tensor alias = at::empty_strided(t.sizes(), t.strides(), t.options().device(kMeta));
      return aliases.emplace_back(t, alias).second;
    }
    if (index >= 0 && index != d.index() && !plan.copies) other_device = d;
    else index = d.index();
    Tensor host = t.is_nested() ? nested_like(t, to_host(t.storage()), c10::DispatchKey::CPU)
        : is_sparse(t)
        ? sparse_like(t, c10::DispatchKey::CPU, kCPU, [&](const Tensor& part) { return to_host(part, at); })
        : like(t, to_host(t.storage()), computes ? c10::DispatchKey::CPU : c10::DispatchKey::Meta);
    if (plan.needs_requires_grad && t.requires_grad()) host.set_requires_grad(true);
    return aliases.emplace_back(t, host).second;
  }

  void to_host(IValue& v, int at) {
    if (v.isTensor()) {
      v = to_host(v.toTensor(), at);
    } else if (v.isStorage()) {
      Device d = v.toStorage().device();
      TORCH_CHECK(d == device(), "Attempted to set the storage of a tensor on device \"", device(),
          "\" to a storage on different device \"", d, "\".  This is no longer allowed; the devices must match.");
      v = to_host(v.toStorage());
    } else if (v.isDevice()) {
      if (v.toDevice().type() != TYPE) return;
      if (index < 0) index = v.toDevice().has_index() ? v.toDevice().index() : current;
      check_exists(index);
      v = Device(computes ? kCPU : kMeta);
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
  Tensor tensor_of(const Tensor& host) const {
    for (auto& [v, h] : aliases)
      if (h.is_same(host)) return v;
    return {};
  }

  // Raises CUDA's error for tensors on several devices.
  [[noreturn]] void raise_mixed(const IValue* arguments) const {
    raise_strict(op.schema().name(), device(), *other_device);
    std::string message = misplaced_message(arguments);
    TORCH_CHECK(message.empty(), message);
    check_as_cuda(arguments);
    raise_different_devices(op.schema().name(), device(), *other_device);
  }

  // The check of devices that CUDA's kernel begins with, where it has one.
  void check_as_cuda(const IValue* arguments) const {
    auto any = [&](auto is) {
      return std::any_of(aliases.begin(), aliases.end(), [&](auto& alias) { return is(alias.first); });
    };
    const char* key = any([](const Tensor& t) { return t.is_nested(); }) ? "NestedTensorCUDA"
        : any([](const Tensor& t) { return is_sparse(t) && t.layout() != kSparse; }) ? "SparseCsrCUDA"
        : any(is_sparse) ? "SparseCUDA" : "CUDA";
    if (const std::string& method = method_of(op, key); !method.empty())
      DeviceCheck{op, method, [&](const Tensor& t) { return tensor_of(t); }}.run(arguments);
  }

  // CUDA's message if a generator is a GPU's and all tensors are on the CPU, if a mask is on another device, or if
  // an index of what is read is neither on the CPU nor on the device of the indexed tensor. Empty in other cases.
  std::string misplaced_message(const IValue* arguments) const {
    if (index < 0 && plan.generator >= 0 && arguments[plan.generator].isGenerator())
      return c10::str("Expected a '", *other_device, "' generator device but found '",
          arguments[plan.generator].toGenerator().device(), "'");
    if (op.schema().name() == "aten::masked_fill_" && TYPE == c10::DeviceType::CUDA)
      return c10::str("expected self and mask to be on the same device, but got mask on ",
          tensor_of(arguments[1].toTensor()).device(), " and self on ", tensor_of(arguments[0].toTensor()).device());
    if (plan.indices < 0 || !arguments[plan.indices].isList()) return "";
    Device indexed = tensor_of(arguments[0].toTensor()).device();
    if (plan.takes == Plan::ASSIGNED)
      return indexed.is_cpu() || !arguments[plan.indices + 2].toBool() ? ""
          : c10::str("expected device ", indexed, " but got device ",
                tensor_of(arguments[plan.value].toTensor()).device(), " for value tensor");
    for (const IValue& v : arguments[plan.indices].toListRef()) {
      auto* t = tensor_in(v);
      if (Device d = t ? tensor_of(*t).device() : indexed; !d.is_cpu() && d != indexed)
        return c10::str("indices should be either on cpu or on the same device as the indexed tensor (", indexed, ")");
    }
    return "";
  }

  Storage to_virtual(const Storage& s) {
    for (auto& [v, h] : storages)
      if (h.unsafeGetStorageImpl() == s.unsafeGetStorageImpl()) return v;
    return storages.emplace_back(virtual_of(s, device().index()), s).first;
  }

  Tensor to_virtual(const Tensor& t) {
    if (!t.defined()) return t;
    if (Tensor v = tensor_of(t); v.defined()) return v;
    if (is_sparse(t)) return sparse_like(t, KEY, device(), [&](const Tensor& part) { return to_virtual(part); });
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
      if ((computes && v.data() != h.data()) || v.nbytes() != h.nbytes())
        take_over(v.unsafeGetStorageImpl(), h, v.device().index());
    for (size_t i = 0; i < aliases.size(); ++i) {
      auto *v = aliases[i].first.unsafeGetTensorImpl(), *h = aliases[i].second.unsafeGetTensorImpl();
      if (v == h || aliases[i].first.is_nested() || v->device_type() != TYPE) continue;
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
    std::optional<Generator> requested;
    if (!argument.isNone()) requested = argument.toGenerator();
    auto& generator = virtual_generator(generator_for(requested, device()));
    argument = generator.begin();
    return generator;
  }
};

// For operations that take no generator: the CPU's own has the virtual GPU's state meanwhile.
struct Drawing {
  static inline std::mutex mutex;
  std::lock_guard<std::mutex> lock{mutex};
  Generator cpu = at::detail::getDefaultCPUGenerator();
  VirtualGenerator& generator;
  Tensor state_of_cpu = cpu.get_state();
  explicit Drawing(DeviceIndex index) : generator(virtual_generator(generators[index])) {
    cpu.set_state(generator.begin().get_state());
  }
  ~Drawing() {
    generator.end(cpu);
    cpu.set_state(state_of_cpu);
  }
};

// The kernel of the same kind, of dense or of sparse tensors, for another backend.
inline DispatchKeySet on(c10::BackendComponent backend, DispatchKeySet keys) {
  return DispatchKeySet(c10::toRuntimePerBackendFunctionalityKey(keys.highestFunctionalityKey(), backend));
}

// Reports an operation that may copy between devices to Python, which raises an error if the copy is forbidden.
inline void report_copies(const c10::OperatorHandle& op, const Plan& plan, const IValue* arguments) {
  if (plan.copies && arguments[0].toTensor().device() == arguments[1].toTensor().device()) return;
  if (plan.size >= 0 && !arguments[plan.size].isNone()) return;
  if (plan.waits_inside && !plan.waits_inside(arguments)) return;
  c10::List<std::optional<Tensor>> tensors;
  auto add = [&](const IValue& v) {
    if (auto* t = tensor_in(v)) tensors.push_back(*t);
    else tensors.push_back(std::nullopt);
  };
  std::optional<bool> flag;  // the first one: non_blocking, accumulate; true if the kernel reads a number
  if (!plan.copies && plan.indices < 0) flag = plan.waits_inside != nullptr;
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

// Refuses what CUDA refuses before it looks at tensors, and makes the reports that precede the operation. The copy is
// returned, if the operation is one that arrives later.
inline std::optional<AsyncCopy> admit(const Run& run, const IValue* arguments) {
  const Plan& plan = run.plan;
  if (C10_UNLIKELY(plan.is_only_on_cpu)) refuse_without_kernel(run.op);
  if (C10_UNLIKELY(checks.load(std::memory_order_relaxed) & COPIES) && plan.may_wait)
    report_copies(run.op, plan, arguments);
  if (C10_UNLIKELY(plan.alert != nullptr) && plan.alert->applies(arguments[plan.alert_argument]))
    at::Context::alertNotDeterministic(plan.alert->caller);
  if (!plan.may_wait || !(checks & (ASYNC | WARN | REFUSE) || c10::impl::GPUTrace::get_trace())) return std::nullopt;
  std::optional<AsyncCopy> copy = wait_as_cuda(plan, arguments);
  if (!copy || !(checks & ASYNC)) return std::nullopt;
  copy->before();
  return copy;
}

// Replaces virtual tensors by their aliases on the host, and raises CUDA's error if they are on several devices.
inline void convert(Run& run, IValue* arguments) {
  for (int i = 0; i < run.plan.arguments; ++i) run.to_host(arguments[i], i);
  if (run.other_device) run.raise_mixed(arguments);
  if (run.has_number && refusing) run.check_as_cuda(arguments);  // some of CUDA's kernels refuse it
}

// Makes results that have shapes only.
inline void call_on_meta(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  struct WithoutFunctionModes {
    at::impl::PythonTorchFunctionTLS saved = at::impl::PythonTorchFunctionTLS::get_state();
    WithoutFunctionModes() {
      at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
    }
    ~WithoutFunctionModes() { at::impl::PythonTorchFunctionTLS::set_state(saved); }
  } guard;
  const auto meta = on(c10::BackendComponent::MetaBit, keys);
  if (op.schema().name() == "aten::_convolution") {  // which chooses a library's kernel, and none for meta tensors
    static auto convolution = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
    torch::jit::drop(*stack, op.schema().arguments().size() - convolution.schema().arguments().size());
    return convolution.redispatchBoxed(meta, stack);
  }
  const bool is_dense = keys.highestFunctionalityKey() == c10::DispatchKey::Dense;
  if (!is_dense || !op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) values::read(op, true);
  op.redispatchBoxed(meta, stack);
}

// Runs the CPU's kernel, with the virtual GPU's random numbers and in a dtype that the CPU has.
inline void call(const Run& run, DispatchKeySet keys, Stack* stack, IValue* arguments) {
  const Plan& plan = run.plan;
  const DeviceIndex index = run.device().index();
  const size_t results = run.op.schema().returns().size();
  VirtualGenerator* generator = nullptr;
  Generator host_generator;
  if (plan.generator >= 0 && !run.computes) {
    arguments[plan.generator] = IValue();
  } else if (plan.generator >= 0) {
    generator = &run.replace_generator(arguments[plan.generator]);
    host_generator = arguments[plan.generator].toGenerator();
  }
  AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard full(c10::autocast_dispatch_keyset);
  std::optional<Drawing> drawing;
  if (plan.seeded && run.computes) drawing.emplace(index);
  std::optional<Wider> wider;
  if (C10_UNLIKELY(plan.special != nullptr))
    wider = prepare(*plan.special, run.op, arguments, plan.arguments, plan.written);
  const auto& kernel = wider && wider->replacement ? *wider->replacement : run.op;
  if (!run.computes) call_on_meta(kernel, keys, stack);
  else naming_out_of_memory([&] { kernel.redispatchBoxed(on(c10::BackendComponent::CPUBit, keys), stack); }, index);
  if (generator) generator->end(host_generator);
  if (wider) wider->round(*stack, results, [&](const Tensor& t) { return run.tensor_of(t).defined(); });
}

// Replaces the results on the host by virtual tensors, and takes over what the operation has changed in its arguments.
inline void return_results(Run& run, IValue* results, IValue* end) {
  if (run.plan.written) run.adopt();
  for (IValue* result = results; result != end; ++result) run.to_virtual(*result);
}

inline void compute(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  check_usable();
  IValue* arguments = stack->data() + (stack->size() - op.schema().arguments().size());
  const Plan& cached = plan_of(op);
  if (C10_UNLIKELY(cached.takes)) {
    taken::take(op, cached, arguments);
    if (taken::is_on_cpu(cached, arguments))
      return op.redispatchBoxed(on(c10::BackendComponent::CPUBit, keys), stack);
  }
  Run run{op, cached, values::is_computed(cached, arguments)};
  const Plan& plan = run.plan;  // a copy, since the kernel may run other operations
  std::optional<AsyncCopy> async_copy = admit(run, arguments);
  if (!run.computes && values::read_values(op, plan, stack, arguments)) return;
  const auto library = workspaces::library_of(plan, arguments);
  const bool notes_temporary = temporaries::is_noted(plan);
  int64_t temporary = notes_temporary ? temporaries::bytes(plan, arguments, arguments + plan.arguments) : 0;
  const auto known = run.computes ? std::nullopt : values::is_known(op, arguments);
  if (C10_UNLIKELY(!computing)) values::note_written(op, plan, arguments, run.computes);
  convert(run, arguments);
  call(run, keys, stack, arguments);
  if (async_copy && run.computes) async_copy->after();
  IValue* end = stack->data() + stack->size();
  IValue* results = end - op.schema().returns().size();
  return_results(run, results, end);
  if (known) values::set_known(results->toTensor(), *known);
  if (C10_UNLIKELY(values::has_read_integer) && !run.aliases.empty() && results != end) values::check_size(op, *results);
  const DeviceIndex index = run.device().index();
  if (notes_temporary) temporaries::note(index, plan, temporary + temporaries::bytes(plan, results, end));
  workspaces::allocate(index, library);
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
