// Facts about an operation, and what the host waits for where it is one of CUDA's.
#pragma once
#include "dtypes.h"
#include "devices.h"
#include <sstream>

namespace xdevice {

// What an operation of CUDA's says where deterministic algorithms are wanted, if this argument is so.
struct Alert {
  std::string caller, argument, value;
  bool applies(const IValue& given) const {
    if (given.isInt()) return value.empty() ? given.toInt() != 0 : std::to_string(given.toInt()) == value;
    if (given.isString()) return given.toStringRef() == value;
    auto* t = tensor_in(given);
    return t && (value.empty() || at::isFloatingType(t->scalar_type()));
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
  bool is_only_on_cpu = false;  // written in Python, for the CPU alone
  const Special* special = nullptr;
};

// Whether Python code defines the operation, and its kernel for the CPU: the same code would run beside a real GPU, and
// leave the operation without a kernel for it. A compiled library may have kernels for CUDA in another build of it.
inline bool is_only_on_cpu(const c10::OperatorHandle& op) {
  if (op.schema().name().rfind("aten::", 0) == 0 || op.hasKernelForDispatchKey(KEY)) return false;
  bool is_defined = false, has_kernel = false;
  std::istringstream lines(op.dumpState());
  for (std::string line; std::getline(lines, line);) {
    bool in_python = line.find(".py:") != line.npos || line.find(">:") != line.npos;  // as <stdin>:1
    is_defined |= in_python && line.rfind("debug: ", 0) == 0;
    has_kernel |= in_python && line.rfind("CPU: ", 0) == 0;
  }
  return is_defined && has_kernel;
}

inline Plan planned(const c10::OperatorHandle& op) {
  Plan plan;
  const auto& arguments = op.schema().arguments();
  const std::string& name = op.schema().name();
  plan.arguments = arguments.size();
  plan.across = name == "aten::copy_" || name == "aten::copy_sparse_to_sparse_";
  plan.differs = name == "aten::_sparse_mm_reduce_impl";
  auto alert = alerts.find(toString(op.operator_name()));
  if (alert == alerts.end()) alert = alerts.find(name.back() == '_' ? name.substr(0, name.size() - 1) : name);
  for (int i = 0; i < plan.arguments; ++i)
    if (const auto* alias = arguments[i].alias_info(); alias && alias->isWrite())
      plan.written |= uint64_t(1) << std::min(i, 63);
  auto at = [&](const std::string& argument) { return op.schema().argumentIndexWithName(argument).value_or(-1); };
  plan.generator = at("generator");
  if (alert != alerts.end()) plan.decides = at(alert->second.argument);
  if (plan.decides >= 0) plan.alert = &alert->second;
  if (name == "aten::repeat_interleave") plan.size = at("output_size");
  if (name.find("index") != name.npos) plan.indices = at("indices");
  plan.special = special_of(op);
  plan.is_only_on_cpu = refusing && is_only_on_cpu(op);
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
  auto* values = plan.arguments > 3 && list.size() == 1 ? tensor_in(arguments[2]) : nullptr;
  bool fills = values && values->is_cpu() && values->numel() == 1;  // by a number: CUDA needs nothing of the mask
  return std::any_of(list.begin(), list.end(), [&](const IValue& v) {
    auto* t = tensor_in(v);
    return t && (t->is_cpu() || (!fills && (t->scalar_type() == kBool || t->scalar_type() == kByte)));
  });
}

// Lets the host wait for what an operation of CUDA's waits for. Returns a copy for which it does not.
inline std::optional<LateCopy> wait_as_cuda(const Plan& plan, const IValue* arguments) {
  auto now = [](const Tensor& t) { return stream_now(t.device().index()); };
  if (plan.across) {
    const Tensor &to = arguments[0].toTensor(), &from = arguments[1].toTensor();
    if (to.device() == from.device()) return {};
    if (to.device().type() == from.device().type()) {
      join(now(to), reached_by(now(from))), join(now(from), reached_by(now(to)));  // each stream waits for the other
      return {};
    }
    const Tensor &host = to.is_cpu() ? to : from, &other = to.is_cpu() ? from : to;
    if (other.device().type() != TYPE) return {};
    bool blocks = plan.arguments < 3 || !arguments[2].toBool();
    bool is_pinned = !is_sparse(host) && host.has_storage() && pinned.holds(host.const_data_ptr());
    if (!blocks && is_pinned && is_direct(host, other)) return LateCopy{host, now(other), to.is_cpu()};
    if (blocks) warn_or_refuse_to_wait();  // memory that is not pinned makes the driver wait, which does not tell
    if (blocks || to.is_cpu()) wait_for(now(other));
  } else if (plan.indices >= 0 ? waits_for_indices(plan, arguments)
                               : plan.size < 0 || arguments[plan.size].isNone()) {
    for (int i = 0; i < plan.arguments; ++i)
      if (auto* t = tensor_in(arguments[i]); t && !t->is_cpu())
        return warn_or_refuse_to_wait(), wait_for(now(*t)), std::nullopt;
  }
  return {};
}
}  // namespace xdevice
