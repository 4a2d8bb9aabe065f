// Facts about an operation, and whether the host waits for it under CUDA.
#pragma once
#include "dtypes.h"
#include "devices.h"
#include <sstream>
#include <unordered_map>
#include <unordered_set>

namespace xdevice {

// An operation of CUDA that is not deterministic if an argument has this value.
struct Alert {
  std::string caller, argument, value;
  bool applies(const IValue& actual) const {
    if (actual.isInt()) return value.empty() ? actual.toInt() != 0 : std::to_string(actual.toInt()) == value;
    if (actual.isString()) return actual.toStringRef() == value;
    auto* t = tensor_in(actual);
    return t && (value.empty() || at::isFloatingType(t->scalar_type()));
  }
};
inline auto& alerts = *new std::unordered_map<std::string, Alert>;  // by the name of the operation, or of an overload

// Facts about an operation, looked up once.
struct Plan {
  const Alert* alert = nullptr;
  int alert_argument = -1;  // the position of the argument that the alert is about
  uint64_t written = 0;  // the arguments that it writes to, one bit for each
  int arguments = 0;
  int generator = -1;    // the position of this argument
  int indices = -1;      // of the argument with indices, which may be on the CPU, as on real GPUs
  int size = -1;         // of the argument by which a program may give the size of the result
  int value = -1;        // of what it fills a tensor with
  enum { NOTHING, READ, ASSIGNED, CHOSEN } takes = NOTHING;  // values from any device: see taken.h
  bool seeded = false;   // draws random numbers, and takes no generator
  bool copies = false;    // between devices
  bool may_wait = false;  // may copy between devices, or wait for a number
  bool (*waits_inside)(const IValue* arguments) = nullptr;  // whether CUDA's kernel reads a number, for these arguments
  bool needs_requires_grad = false;  // computes more if an argument requires a gradient
  bool is_only_on_cpu = false;  // written in Python, for the CPU alone
  const Special* special = nullptr;
  bool overwrites = false;  // its first argument, whatever the values were
  // What it reads of its arguments, besides values that decide on the values of results: only sizes and strides; a number
  // that Python gets; what decides on a result's shape.
  enum { VALUES, SIZES, NUMBER, SHAPE } reads = VALUES;
  enum { NO_PRODUCT, PRODUCT, ADDED } product = NO_PRODUCT;  // of matrices, by cuBLAS; ADDED: added to a first argument
  // What makes the temporary memory of CUDA's kernel large: see temporaries.h, and cuda/memory_use.py for the numbers.
  enum Temporary : int { SMALL, SORTING, INDICES, TRANSFORMS, LINEAR_ALGEBRA, CONVOLUTIONS } temporary = SMALL;
};

// What makes the temporary memory of CUDA's kernel large, by the operation's name.
inline Plan::Temporary temporary_of(const std::string& name) {
  static const std::unordered_map<std::string, Plan::Temporary> kinds{
      {"sort", Plan::SORTING}, {"_unique", Plan::SORTING}, {"_unique2", Plan::SORTING}, {"unique_dim", Plan::SORTING},
      {"unique_consecutive", Plan::SORTING}, {"mode", Plan::SORTING}, {"randperm", Plan::SORTING},
      {"index_put_", Plan::INDICES}, {"_index_put_impl_", Plan::INDICES}, {"embedding_dense_backward", Plan::INDICES},
      {"_fft_r2c", Plan::TRANSFORMS}, {"_fft_c2r", Plan::TRANSFORMS}, {"_fft_c2c", Plan::TRANSFORMS},
      {"_linalg_eigvals", Plan::LINEAR_ALGEBRA}, {"_linalg_solve_ex", Plan::LINEAR_ALGEBRA},
      {"_linalg_svd", Plan::LINEAR_ALGEBRA}, {"_linalg_eigh", Plan::LINEAR_ALGEBRA},
      {"_linalg_det", Plan::LINEAR_ALGEBRA}, {"_linalg_slogdet", Plan::LINEAR_ALGEBRA},
      {"linalg_eig", Plan::LINEAR_ALGEBRA}, {"linalg_eigvals", Plan::LINEAR_ALGEBRA},
      {"linalg_qr", Plan::LINEAR_ALGEBRA}, {"linalg_lu", Plan::LINEAR_ALGEBRA},
      {"linalg_lu_factor_ex", Plan::LINEAR_ALGEBRA}, {"linalg_lu_solve", Plan::LINEAR_ALGEBRA},
      {"linalg_cholesky_ex", Plan::LINEAR_ALGEBRA}, {"cholesky_inverse", Plan::LINEAR_ALGEBRA},
      {"cholesky_solve", Plan::LINEAR_ALGEBRA}, {"linalg_inv_ex", Plan::LINEAR_ALGEBRA},
      {"linalg_lstsq", Plan::LINEAR_ALGEBRA}, {"linalg_ldl_factor_ex", Plan::LINEAR_ALGEBRA},
      {"linalg_householder_product", Plan::LINEAR_ALGEBRA}, {"geqrf", Plan::LINEAR_ALGEBRA},
      {"ormqr", Plan::LINEAR_ALGEBRA}};
  if (name.rfind("aten::", 0) != 0) return Plan::SMALL;
  if (name.find("conv") != name.npos) return Plan::CONVOLUTIONS;
  auto kind = kinds.find(name.substr(6));
  return kind == kinds.end() ? Plan::SMALL : kind->second;
}

// Operations of dense tensors whose kernels for CUDA read a number, although no tag says so. The functions are those of
// PyTorch 2.13.0+cu130, in libtorch_cuda.so or, where both devices have one, libtorch_cpu.so, that call `item`,
// `nonzero`, `_linalg_check_errors` or `warn_or_error_on_sync`; the conditions are those around the calls.
inline auto waits_inside(const std::string& name) -> decltype(Plan::waits_inside) {
  using Waits = decltype(Plan::waits_inside);
  static const Waits always = [](const IValue*) { return true; };
  static const std::unordered_map<std::string, Waits> waits{
      {"histc", [](const IValue* a) { return a[2].toScalar().toDouble() == a[3].toScalar().toDouble(); }},
      {"mode", [](const IValue* a) {  // a kernel for at most 2048 elements does not wait
         const Tensor& self = a[0].toTensor();
         return self.dim() && self.size(a[1].toInt()) > 2048;
       }},
      {"searchsorted", [](const IValue* a) { return tensor_in(a[5]) != nullptr; }},  // to check the sorter
      {"segment_reduce", [](const IValue* a) { return !a[6].toBool(); }},
      {"_to_sparse", always}, {"linalg_matrix_exp", always}, {"linalg_eig", always}, {"linalg_eigvals", always},
      {"_linalg_eigh", always}, {"linalg_lstsq", always}, {"cholesky_inverse", always},
      {"fake_quantize_per_channel_affine_cachemask", always}, {"_fake_quantize_learnable_per_tensor_affine", always}};
  auto found = name.rfind("aten::", 0) == 0 ? waits.find(name.substr(6)) : waits.end();
  return found == waits.end() ? nullptr : found->second;
}

// Whether Python code defines the operation, and a kernel for the CPU only. With a real GPU the same code would leave
// the operation without a kernel for CUDA. A compiled library may have kernels for CUDA in another build of it.
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

inline Plan make_plan(const c10::OperatorHandle& op) {
  Plan plan;
  const auto& arguments = op.schema().arguments();
  const std::string& name = op.schema().name();
  plan.arguments = arguments.size();
  plan.copies = name == "aten::copy_" || name == "aten::copy_sparse_to_sparse_";
  plan.needs_requires_grad = name == "aten::_sparse_mm_reduce_impl";
  auto alert = alerts.find(toString(op.operator_name()));
  if (alert == alerts.end()) alert = alerts.find(name.back() == '_' ? name.substr(0, name.size() - 1) : name);
  for (int i = 0; i < plan.arguments; ++i)
    if (const auto* alias = arguments[i].alias_info(); alias && alias->isWrite())
      plan.written |= uint64_t(1) << std::min(i, 63);
  auto at = [&](const std::string& argument) { return op.schema().argumentIndexWithName(argument).value_or(-1); };
  plan.generator = at("generator");
  if (alert != alerts.end()) plan.alert_argument = at(alert->second.argument);
  if (plan.alert_argument >= 0) plan.alert = &alert->second;
  if (name == "aten::repeat_interleave") plan.size = at("output_size");
  if (name.find("index") != name.npos) plan.indices = at("indices");
  const bool is_torchs = name.rfind("aten::", 0) == 0;
  auto is_tensor = [&](int i) { return is_torchs && i >= 0 && arguments[i].type()->kind() == c10::TypeKind::TensorType; };
  const int value = at("value"), values = at("values");
  if (name == "aten::where" && plan.arguments > 2 && is_tensor(2)) plan.takes = Plan::CHOSEN;
  else if (plan.written & 1 && is_tensor(value)) plan.takes = Plan::READ, plan.value = value;
  else if (plan.written & 1 && is_tensor(values) && plan.indices > 0) plan.takes = Plan::ASSIGNED, plan.value = values;
  plan.special = special_of(op);
  static const std::unordered_set<std::string> products{"aten::mm", "aten::bmm", "aten::baddbmm", "aten::addmv",
      "aten::mv", "aten::dot", "aten::vdot", "aten::_scaled_mm", "aten::_int_mm", "aten::addbmm"};
  if (products.count(name)) plan.product = Plan::PRODUCT;
  if (name == "aten::addmm" || name == "aten::_addmm_activation") plan.product = Plan::ADDED;
  plan.temporary = temporary_of(name);
  plan.overwrites = plan.copies || name == "aten::zero_" || name == "aten::fill_";
  if (name == "aten::_fused_sdp_choice") plan.reads = Plan::SIZES;
  else if (name == "aten::_local_scalar_dense") plan.reads = Plan::NUMBER;
  else if (op.hasTag(Tag::dynamic_output_shape) || op.hasTag(Tag::data_dependent_output)) plan.reads = Plan::SHAPE;
  plan.is_only_on_cpu = refusing && is_only_on_cpu(op);
  plan.seeded = plan.generator < 0 && op.hasTag(Tag::nondeterministic_seeded);
  plan.waits_inside = waits_inside(name);
  plan.may_wait = plan.waits_inside || plan.copies || plan.indices >= 0 || op.hasTag(Tag::dynamic_output_shape) ||
      op.hasTag(Tag::data_dependent_output);
  return plan;
}

inline const Plan& plan_of(const c10::OperatorHandle& op) {
  static thread_local std::unordered_map<const c10::FunctionSchema*, Plan> plans;
  static thread_local Plan temporary;
  auto cached = plans.find(&op.schema());
  if (cached != plans.end()) return cached->second;
  if (op.schema().name().compare(0, 6, "aten::")) return temporary = make_plan(op);  // a library may remove its own
  return plans.emplace(&op.schema(), make_plan(op)).first->second;
}

// Whether CUDA copies directly between the two tensors, without further memory, and so asynchronously.
inline bool is_direct(const Tensor& host, const Tensor& other) {
  return host.is_contiguous() || (host.scalar_type() == other.scalar_type() && host.strides() == other.strides() &&
      host.sizes() == other.sizes() && host.is_non_overlapping_and_dense());
}

// Whether the operation copies an index to the virtual GPU, or the number of a mask's elements to the host.
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

// Lets the host wait if CUDA's operation does. Returns a copy that is asynchronous.
inline std::optional<AsyncCopy> wait_as_cuda(const Plan& plan, const IValue* arguments) {
  auto stream_of = [](const Tensor& t) { return current_stream(t.device().index()); };
  if (plan.copies) {
    const Tensor &to = arguments[0].toTensor(), &from = arguments[1].toTensor();
    if (to.device() == from.device()) return {};
    if (to.device().type() == from.device().type()) {
      join(stream_of(to), clock_of(stream_of(from)));  // each stream waits for the other
      join(stream_of(from), clock_of(stream_of(to)));
      return {};
    }
    const Tensor &host = to.is_cpu() ? to : from, &other = to.is_cpu() ? from : to;
    if (other.device().type() != TYPE) return {};
    bool blocks = plan.arguments < 3 || !arguments[2].toBool();
    bool is_pinned = !is_sparse(host) && host.has_storage() && pinned.holds(host.const_data_ptr());
    if (!blocks && is_pinned && is_direct(host, other)) return AsyncCopy{host, stream_of(other), to.is_cpu()};
    if (blocks) warn_or_refuse_to_wait();  // for memory that is not pinned the driver waits, without a warning
    if (blocks || to.is_cpu()) wait_for(stream_of(other));
  } else if (plan.waits_inside ? plan.waits_inside(arguments)
          : plan.indices >= 0  ? waits_for_indices(plan, arguments)
                               : plan.size < 0 || arguments[plan.size].isNone()) {
    for (int i = 0; i < plan.arguments; ++i)
      if (auto* t = tensor_in(arguments[i]); t && !t->is_cpu())
        return warn_or_refuse_to_wait(), wait_for(stream_of(*t)), std::nullopt;
  }
  return {};
}
}  // namespace xdevice
