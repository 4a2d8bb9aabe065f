// Every operation on virtual GPUs: one boxed kernel runs the CPU's on CPU aliases that share the arguments' memory.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "devices.h"
#include "dtypes.h"
#include "sparse.h"

namespace xdevice {
using torch::jit::Stack;

// What an operation of CUDA's says where deterministic algorithms are wanted, if this argument is so.
struct Alert {
  std::string caller, argument, value;
  bool applies(const IValue& given) const {
    if (given.isInt()) return value.empty() ? given.toInt() != 0 : std::to_string(given.toInt()) == value;
    if (given.isString()) return given.toStringRef() == value;
    return given.isTensor() && given.toTensor().defined() &&
        (value.empty() || at::isFloatingType(given.toTensor().scalar_type()));
  }
};
inline auto& alerts = *new std::unordered_map<std::string, Alert>;  // by the name of the operation, or of an overload

// Facts about an operation, looked up once.
struct Plan {
  const Alert* alert = nullptr;
  int decides = -1;      // the position of the argument that the alert is about
  uint64_t written = 0;  // the arguments that it writes to, one bit for each
  int arguments = 0;
  int generator = -1;    // the position of this argument
  int indices = -1;      // of the argument with indices, which may be on the CPU, as on real GPUs
  int size = -1;         // of the size of the result, where the program may know it
  bool seeded = false;   // draws random numbers, and takes no generator
  bool across = false;   // copies between devices
  bool waits = false;    // may copy between devices, or wait for a number
  bool differs = false;  // makes more where a gradient is wanted
  const Special* special = nullptr;
};

inline Plan planned(const c10::OperatorHandle& op) {
  Plan plan;
  const auto& arguments = op.schema().arguments();
  const std::string& name = op.schema().name();
  plan.arguments = arguments.size();
  plan.across = name == "aten::copy_" || name == "aten::copy_sparse_to_sparse_";
  plan.differs = name == "aten::_sparse_mm_reduce_impl";
  auto alert = alerts.find(toString(op.operator_name()));
  if (alert == alerts.end()) alert = alerts.find(name.back() == '_' ? name.substr(0, name.size() - 1) : name);
  for (int i = 0; i < plan.arguments; ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias && alias->isWrite()) plan.written |= uint64_t(1) << std::min(i, 63);
    if (arguments[i].name() == "generator") plan.generator = i;
    if (alert != alerts.end() && arguments[i].name() == alert->second.argument)
      plan.alert = &alert->second, plan.decides = i;
    if (arguments[i].name() == "output_size" && name == "aten::repeat_interleave") plan.size = i;
    if (arguments[i].name() == "indices" && name.find("index") != std::string::npos) plan.indices = i;
  }
  plan.special = special_of(op);
  plan.seeded = plan.generator < 0 && op.hasTag(Tag::nondeterministic_seeded);
  plan.waits = plan.across || plan.indices >= 0 || op.hasTag(Tag::dynamic_output_shape) ||
      op.hasTag(Tag::data_dependent_output);
  return plan;
}

inline const Plan& plan_of(const c10::OperatorHandle& op) {
  static thread_local std::unordered_map<const c10::FunctionSchema*, Plan> plans;
  static thread_local Plan once;
  auto at = plans.find(&op.schema());
  if (at != plans.end()) return at->second;
  if (op.schema().name().compare(0, 6, "aten::")) return once = planned(op);  // a library's may be taken away again
  return plans.emplace(&op.schema(), planned(op)).first->second;
}

// A tensor with the sizes, strides, dtype and lazy bits of another, in that storage.
inline Tensor like(const Tensor& t, Storage storage, c10::DispatchKey key) {
  Tensor made = at::detail::make_tensor<TensorImpl>(std::move(storage), DispatchKeySet(key), t.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (t.is_conj()) impl->_set_conj(true);
  if (t.is_neg()) impl->_set_neg(true);
  return made;
}

// Devices mixed in one operation: CUDA's error, or in a strict block the one that Python raises.
[[noreturn]] inline void mixed(const std::string& operation, Device a, Device b) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow("xdevice_virtual::mixed", "");
  Stack stack{operation, a, b};
  op.callBoxed(&stack);
  if (std::make_pair(a.is_cpu(), a.index()) > std::make_pair(b.is_cpu(), b.index())) std::swap(a, b);
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
      "! (when checking ", operation, ")");
}

// One run of an operation.
struct Run {
  const c10::OperatorHandle& op;
  const Plan plan;
  int index = -1;                  // of the virtual GPU where it happens
  std::optional<Device> stranger;  // another device that a tensor is on
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
      if (!plan.across && (!d.is_cpu() || written || (t.dim() && at != plan.indices))) stranger = d;
      return aliases.emplace_back(t, t).second;
    }
    if (index >= 0 && index != d.index() && !plan.across) stranger = d;
    else index = d.index();
    Tensor host = is_sparse(t)
        ? sparse_like(t, c10::DispatchKey::CPU, kCPU, [&](const Tensor& part) { return to_host(part, at); })
        : like(t, to_host(t.storage()), c10::DispatchKey::CPU);
    if (plan.differs && t.requires_grad()) host.set_requires_grad(true);
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
      items_to_host(v, at);
    }
  }

  void items_to_host(IValue& v, int at) {
    auto list = v.toList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      IValue item = list.get(i);
      if (item.isTensor()) {
        to_host(item, at);
        list.set(i, item);
      } else if (!item.isNone()) {
        return;  // numbers
      }
    }
    v = list;
  }

  bool has(const Tensor& host) const {
    return std::any_of(aliases.begin(), aliases.end(), [&](const auto& each) { return each.second.is_same(host); });
  }

  Storage to_virtual(const Storage& s) {
    for (auto& [v, h] : storages)
      if (h.unsafeGetStorageImpl() == s.unsafeGetStorageImpl()) return v;
    return storages.emplace_back(virtual_of(s, here().index()), s).first;
  }

  Tensor to_virtual(const Tensor& t) {
    if (!t.defined()) return t;
    for (auto& [v, h] : aliases)
      if (h.is_same(t)) return v;
    if (is_sparse(t)) return sparse_like(t, KEY, here(), [&](const Tensor& part) { return to_virtual(part); });
    TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == kStrided && !t.is_quantized() && !t.is_nested(), op.schema().name(),
        " makes a quantized or nested tensor, which are not supported on virtual GPUs; do it on the CPU");
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
      if (v == h) continue;
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

  void give_generator(IValue& given) {
    Device d = here();
    Generator g = given.isNone() ? generators[d.index()] : given.toGenerator();
    Device of = g.device();
    TORCH_CHECK(of.type() == TYPE || TYPE != c10::DeviceType::CUDA,
        "Expected a 'cuda' device type for generator but found '", of.type(), "'");
    TORCH_CHECK(of == d, "Expected a '", d, "' generator device but found '", of, "'");
    given = static_cast<Draws*>(g.unsafeGetGeneratorImpl())->host;
  }
};

// For operations that take no generator: the CPU's own has the virtual GPU's state meanwhile.
struct Drawing {
  static inline std::mutex one;
  std::lock_guard<std::mutex> lock{one};
  Generator cpu = at::detail::getDefaultCPUGenerator(), ours;
  Tensor kept = cpu.get_state();
  explicit Drawing(DeviceIndex index) : ours(static_cast<Draws*>(generators[index].unsafeGetGeneratorImpl())->host) {
    cpu.set_state(ours.get_state());
  }
  ~Drawing() {
    ours.set_state(cpu.get_state());
    cpu.set_state(kept);
  }
};

// The CPU's kernel of the same kind: of dense or of sparse tensors.
inline DispatchKeySet on_cpu(DispatchKeySet keys) {
  return DispatchKeySet(
      c10::toRuntimePerBackendFunctionalityKey(keys.highestFunctionalityKey(), c10::BackendComponent::CPUBit));
}

// Lets Python look at an operation that may copy between devices: it raises an error where that is forbidden.
inline void look(const c10::OperatorHandle& op, const Plan& plan, const IValue* arguments) {
  if (plan.across && arguments[0].toTensor().device() == arguments[1].toTensor().device()) return;
  if (plan.size >= 0 && !arguments[plan.size].isNone()) return;
  c10::List<std::optional<Tensor>> tensors;
  auto add = [&](const IValue& v) {
    if (v.isTensor() && v.toTensor().defined()) tensors.push_back(v.toTensor());
    else if (v.isTensor() || v.isNone()) tensors.push_back(std::nullopt);
  };
  std::optional<bool> flag;  // the first one: non_blocking, accumulate
  for (int i = 0; i < plan.arguments; ++i) {
    if (arguments[i].isBool() && !flag) flag = arguments[i].toBool();
    if (arguments[i].isTensor()) add(arguments[i]);
    else if (i == plan.indices && arguments[i].isList()) for (const IValue& v : arguments[i].toListRef()) add(v);
  }
  Stack stack{op.schema().name(), tensors, flag.value_or(false)};
  call_python("look", stack);
}

// Whether CUDA's copy needs no memory beside the two tensors', and is then given to the stream as it is.
inline bool is_direct(const Tensor& host, const Tensor& other) {
  return host.is_contiguous() || (host.scalar_type() == other.scalar_type() && host.strides() == other.strides() &&
      host.sizes() == other.sizes() && host.is_non_overlapping_and_dense());
}

// Whether the operation sends an index to the virtual GPU, or a mask's number of elements from there.
inline bool waits_for_indices(const Plan& plan, const IValue* arguments) {
  const Tensor& self = arguments[0].toTensor();
  if (self.is_cpu() || !arguments[plan.indices].isList()) return false;
  const auto& list = arguments[plan.indices].toListRef();
  bool fills = plan.arguments > 3 && list.size() == 1 && arguments[2].isTensor() && arguments[2].toTensor().is_cpu() &&
      arguments[2].toTensor().numel() == 1;  // by a number, where CUDA needs none of the mask
  return std::any_of(list.begin(), list.end(), [&](const IValue& v) {
    if (!v.isTensor() || !v.toTensor().defined()) return false;
    auto type = v.toTensor().scalar_type();
    return v.toTensor().is_cpu() || (!fills && (type == kBool || type == kByte));
  });
}

// Lets the host wait for what an operation of CUDA's waits for. Returns a copy for which it does not.
inline std::optional<LateCopy> wait_as_cuda(const Plan& plan, const IValue* arguments) {
  auto now = [](const Tensor& t) { return stream_now(t.device().index()); };
  if (plan.across) {
    const Tensor &to = arguments[0].toTensor(), &from = arguments[1].toTensor();
    if (to.device() == from.device()) return {};
    if (to.device().type() == from.device().type()) {
      order(now(from), now(to)), order(now(to), now(from));
      return {};
    }
    const Tensor &host = to.is_cpu() ? to : from, &other = to.is_cpu() ? from : to;
    bool blocks = plan.arguments < 3 || !arguments[2].toBool();
    bool is_pinned = !is_sparse(host) && host.has_storage() && pinned.holds(host.const_data_ptr());
    if (!blocks && is_pinned && is_direct(host, other)) return LateCopy{host, now(other), to.is_cpu()};
    if (blocks || to.is_cpu()) wait_for(now(other));
  } else if (plan.indices >= 0 ? waits_for_indices(plan, arguments)
                               : plan.size < 0 || arguments[plan.size].isNone()) {
    for (int i = 0; i < plan.arguments; ++i)
      if (arguments[i].isTensor() && arguments[i].toTensor().defined() && !arguments[i].toTensor().is_cpu())
        return wait_for(now(arguments[i].toTensor())), std::nullopt;
  }
  return {};
}

inline void compute(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  check_usable();
  Run run{op, plan_of(op)};
  const Plan& plan = run.plan;
  auto* arguments = stack->data() + (stack->size() - plan.arguments);
  if (const int on = checks.load(std::memory_order_relaxed); C10_UNLIKELY(on)) {
    if (on & COPIES && plan.waits) look(op, plan, arguments);
  }
  if (C10_UNLIKELY(plan.alert != nullptr) && plan.alert->applies(arguments[plan.decides]))
    at::Context::alertNotDeterministic(plan.alert->caller);
  std::optional<LateCopy> late;
  if (plan.waits && (checks & LATE || c10::impl::GPUTrace::get_trace())) late = wait_as_cuda(plan, arguments);
  if (late && checks & LATE) late->before();
  for (int i = 0; i < plan.arguments; ++i) run.to_host(arguments[i], i);
  if (run.stranger) mixed(op.schema().name(), run.here(), *run.stranger);
  if (plan.generator >= 0) run.give_generator(arguments[plan.generator]);
  {
    AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard full(c10::DispatchKey::AutocastCPU);
    std::optional<Drawing> drawing;
    if (plan.seeded) drawing.emplace(run.here().index());
    std::optional<Wider> wider;
    if (C10_UNLIKELY(plan.special != nullptr)) wider = prepare(*plan.special, op, arguments, plan.arguments, plan.written);
    const auto& kernel = wider && wider->instead ? *wider->instead : op;
    naming_out_of_memory([&] { kernel.redispatchBoxed(on_cpu(keys), stack); }, run.here().index());
    if (wider) wider->round(*stack, op.schema().returns().size(), [&](const Tensor& t) { return run.has(t); });
  }
  if (late && checks & LATE) late->after();
  if (plan.written) run.adopt();
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) run.to_virtual((*stack)[i]);
}

// Sizes and strides only: the CPU's code takes virtual tensors as they are.
inline void on_sizes(const c10::OperatorHandle& op, Stack* stack) {
  op.redispatchBoxed(DispatchKeySet(c10::DispatchKey::CPU), stack);
}

inline void refuse(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.schema().name(),
      " is for quantized or nested tensors, which are not supported on virtual GPUs; do it on the CPU");
}
}  // namespace xdevice
