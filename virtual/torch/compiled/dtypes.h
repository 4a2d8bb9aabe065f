// Dtypes that only CUDA's kernels, or only the CPU's, support. Those that CUDA's lack are refused. Those that the CPU's
// lack are computed in a wider dtype, and rounded. The rows are those of cuda/dtypes_2.13.txt.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/result_type.h>

#include <unordered_map>

#include "aliases.h"

namespace xdevice {
using namespace at;
using torch::jit::Stack;

struct Dtypes {
  struct Lack {
    std::string reduce;  // the reduction that it is about, or empty
    std::string message; // CUDA's, with {} for the dtype
    uint64_t types;      // one bit for each
  };
  std::vector<Lack> on_cuda;
  uint64_t on_cpu = 0;
};

inline auto& dtypes = *new std::unordered_map<std::string, Dtypes>;  // by the name of the operation, or of an overload

// Facts about an operation that is not run like others, looked up once.
struct Special {
  const Dtypes* dtypes = nullptr;
  std::string name;
  int second = -1;  // the position of the operand that the first is promoted with
  int dtype = -1, reduce = -1, driver = -1;
  bool lacks_cpu_kernel = false;
};

inline const Special* special_of(const c10::OperatorHandle& op) {
  if (TYPE != c10::DeviceType::CUDA || op.schema().name().compare(0, 6, "aten::")) return nullptr;
  Special special;
  std::string name = special.name = op.schema().name().substr(6);
  if (name.size() > 2 && name.back() == '_' && name[name.size() - 2] != '_') name.pop_back();
  for (const auto& key : {name + "." + op.schema().overload_name(), name})
    if (auto row = dtypes.find(key); row != dtypes.end() && !special.dtypes) special.dtypes = &row->second;
  auto at = [&](const char* argument) { return op.schema().argumentIndexWithName(argument).value_or(-1); };
  special.second = std::max(at("other"), at("exponent")), special.dtype = at("dtype"), special.reduce = at("reduce");
  if (name == "_linalg_svd" || name == "linalg_lstsq") special.driver = at("driver");
  special.lacks_cpu_kernel = true;
  using Key = c10::DispatchKey;
  for (auto key : {Key::CPU, Key::SparseCPU, Key::SparseCsrCPU, Key::NestedTensorCPU})
    if (op.hasComputedKernelForDispatchKey(key)) special.lacks_cpu_kernel = false;
  if (!special.dtypes && special.driver < 0 && !special.lacks_cpu_kernel) return nullptr;
  return new Special(special);  // lasts as long as the operation
}

// The dtype that the kernel computes in: that of the argument, or that of the first tensor, promoted with a second
// operand. Nothing for sparse tensors, which the table does not include.
inline std::optional<ScalarType> compute_dtype(const Special& special, const IValue* arguments, int n) {
  for (int i = 0; i < n; ++i)
    if (auto* t = tensor_in(arguments[i]); t && t->layout() != kStrided) return std::nullopt;
  if (special.dtype >= 0 && arguments[special.dtype].isInt()) return arguments[special.dtype].toScalarType();
  for (int i = 0; i < n; ++i) {
    auto* first = tensor_in(arguments[i]);
    if (!first) continue;
    if (special.second <= i) return first->scalar_type();
    const IValue& second = arguments[special.second];
    if (auto* other = tensor_in(second)) return at::result_type(*first, *other);
    return second.isScalar() ? at::result_type(*first, second.toScalar()) : first->scalar_type();
  }
  return std::nullopt;
}

inline void refuse_as_cuda(const Special& special, ScalarType type, const IValue* arguments) {
  for (const auto& lack : special.dtypes->on_cuda) {
    if (!(lack.types >> int(type) & 1)) continue;
    if (!lack.reduce.empty() && arguments[special.reduce].toStringRef() != lack.reduce) continue;
    std::string message = lack.message;
    if (auto at = message.find("{}"); at != message.npos) message.replace(at, 2, c10::toString(type));
    bool lacks_kernel = message.find("not implemented for") != message.npos || message.find("Could not run") == 0;
    TORCH_CHECK_NOT_IMPLEMENTED(!lacks_kernel, message);
    TORCH_CHECK(false, message);
  }
}

// cuFFT's own limit in half precision.
inline void check_signal_sizes(const Special& special, const IValue* arguments) {
  const Tensor& x = arguments[0].toTensor();
  auto dims = arguments[1].toDimVector();
  for (size_t i = 0; i < dims.size(); ++i) {
    bool last = special.name == "_fft_c2r" && i + 1 == dims.size();
    int64_t size = last ? arguments[3].toInt() : x.size(dims[i]);
    TORCH_CHECK((size & (size - 1)) == 0, "cuFFT only supports dimensions whose sizes are powers of two when computing in "
        "half precision, but got a signal size of[", size, "]");
  }
}

// One run in a wider dtype.
struct Wider {
  ScalarType narrow;
  std::optional<c10::OperatorHandle> replacement;  // another operation, with the same arguments
  struct Widened {
    Tensor original, wide;
    bool written;
  };
  c10::SmallVector<Widened, 4> widened;

  static ScalarType wider_type(ScalarType type) {
    switch (type) {
      case kHalf: case kBFloat16: return kFloat;
      case kComplexHalf: return kComplexFloat;
      case kBool: return kByte;
      case kComplexFloat: case kComplexDouble: return type;
      default: return kDouble;
    }
  }

  bool takes(ScalarType type) const {
    bool half = (narrow == kHalf || narrow == kComplexHalf) && (type == kHalf || type == kComplexHalf);
    return (type == narrow || half) && wider_type(type) != type;
  }

  void widen(IValue* arguments, int n, uint64_t written) {
    for (int i = 0; i < n; ++i) {
      auto* t = tensor_in(arguments[i]);
      if (!t || !takes(t->scalar_type())) continue;
      Tensor original = *t;
      widened.push_back({original, original.to(wider_type(original.scalar_type())), bool(written >> i & 1)});
      arguments[i] = widened.back().wide;
    }
  }

  // The CPU has no sum without NaNs of complex numbers.
  void mask(IValue* arguments, const std::string& overload) {
    Tensor x = arguments[0].toTensor();
    arguments[0] = x.masked_fill(x.isnan(), 0);
    const char* overload_of_sum = overload == "out" ? "IntList_out" : "dim_IntList";
    replacement = c10::Dispatcher::singleton().findSchemaOrThrow("aten::sum", overload_of_sum);
  }

  Tensor rounded(const Tensor& t) {
    for (const auto& each : widened)
      if (each.wide.is_same(t)) return each.original;
    for (auto type : {narrow, kHalf, kComplexHalf})
      if (takes(type) && t.scalar_type() == wider_type(type)) return t.to(type);
    return t;
  }

  template <class F>
  void round(Stack& stack, size_t results, F is_argument) {
    for (auto& each : widened) {
      if (!each.written) continue;
      if (each.original.sizes() != each.wide.sizes()) each.original.resize_(each.wide.sizes());
      each.original.copy_(each.wide);
    }
    for (size_t i = stack.size() - results; i < stack.size(); ++i)
      if (auto* t = tensor_in(stack[i]); t && !is_argument(*t)) stack[i] = rounded(*t);
  }
};

inline bool refusing = false;  // whether what CUDA refuses is refused here

// The library's routine: those that CUDA alone has give way to the CPU's, and least squares have CUDA's only one.
inline void choose_driver(const std::string& name, IValue& argument) {
  const std::string driver = argument.isString() ? argument.toStringRef() : "";
  if (name == "_linalg_svd") {
    if (driver == "gesvd" || driver == "gesvdj" || driver == "gesvda") argument = IValue();
  } else if (refusing) {
    TORCH_CHECK(driver.empty() || driver == "gels",
        "torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA");
    argument = IValue("gels");
  }
}

// Refuses what CUDA refuses, and what cannot be computed; the rest is computed as the CPU can.
inline std::optional<Wider> prepare(
    const Special& special, const c10::OperatorHandle& op, IValue* arguments, int n, uint64_t written) {
  bool attention = special.name.find("attention") != special.name.npos;
  TORCH_CHECK_NOT_IMPLEMENTED(!special.lacks_cpu_kernel, op.schema().name(),
      " has no kernel for the CPU, on which virtual GPUs compute; ",
      attention ? "use torch.nn.functional.scaled_dot_product_attention" : "use other operations instead");
  if (special.driver >= 0) choose_driver(special.name, arguments[special.driver]);
  if (!special.dtypes) return std::nullopt;
  auto type = compute_dtype(special, arguments, n);
  if (!type) return std::nullopt;
  bool empty = arguments[0].isTensor() && !arguments[0].toTensor().numel();  // for which CUDA starts no kernel
  if (!empty) refuse_as_cuda(special, *type, arguments);
  if (!(special.dtypes->on_cpu >> int(*type) & 1)) return std::nullopt;
  if (refusing && special.name.rfind("_fft_", 0) == 0) check_signal_sizes(special, arguments);
  Wider wider{*type};
  wider.widen(arguments, n, written);
  if (special.dtype >= 0 && arguments[special.dtype].isInt() && wider.takes(*type))
    arguments[special.dtype] = int64_t(Wider::wider_type(*type));
  if (special.name == "nansum") wider.mask(arguments, op.schema().overload_name());
  return wider;
}
}  // namespace xdevice
