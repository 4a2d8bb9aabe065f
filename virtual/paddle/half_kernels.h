// 16-bit floats on virtual GPUs. The CPU has few kernels for them. Others are computed by the kernels of float32,
// on copies of the inputs in float32; the results are rounded. Kernels of GPUs add up in float32 and round, too.
//
// PaddlePaddle calls a kernel with references, pointers, integers and floats, in the order in which the kernel is
// registered. By the calling conventions of Linux on x86-64 and AArch64, a function whose parameters are words and
// doubles receives all of these arguments, and can pass them on. One template therefore serves each kernel.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "paddle/phi/core/custom_kernel.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/kernel_context.h"
#include "paddle/phi/core/kernel_factory.h"

namespace xdevice::half {

using Tensor = phi::DenseTensor;
using Tensors = std::vector<Tensor*>;
using Holder = std::shared_ptr<phi::Allocation>;
using phi::DataType;

// functions of PaddlePaddle, with which the plug-in is not linked
void (*set_type)(Tensor*, DataType);
void (*hold)(Tensor*, const Holder&);

bool IsHalf(DataType type) { return type == DataType::FLOAT16 || type == DataType::BFLOAT16; }
DataType TypeOf(const phi::TensorBase& tensor) { return tensor.dtype(); }
size_t CountOf(const phi::TensorBase& tensor) { return tensor.numel(); }
bool HasNumbers(const Tensor& tensor) { return tensor.Holder() && tensor.Holder()->ptr(); }

template <class Number>
Number* NumbersOf(const Tensor& tensor) {
  return reinterpret_cast<Number*>(static_cast<char*>(tensor.Holder()->ptr()) + tensor.meta().offset);
}

struct Memory : phi::Allocation {
  Memory(size_t size, const phi::Place& place)
      : phi::Allocation(std::aligned_alloc(64, size / 64 * 64 + 64), size, place) {}
  ~Memory() { std::free(ptr()); }
};

// Convert a tensor to another type, in the given memory if it is large enough, else in new memory.
template <class From, class To>
void Convert(Tensor* tensor, DataType type, Holder memory) {
  const size_t count = CountOf(*tensor), size = tensor->meta().offset + count * sizeof(To);
  const Holder previous = tensor->Holder();
  const From* from = NumbersOf<From>(*tensor);
  if (!memory || memory->size() < size) memory = std::make_shared<Memory>(size, previous->place());
  // `hold` requires memory that is large enough for the current type
  if (sizeof(To) < sizeof(From)) set_type(tensor, type);
  hold(tensor, memory);
  set_type(tensor, type);
  To* to = NumbersOf<To>(*tensor);
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<float>(from[i]));
}

void Cast(Tensor* tensor, DataType type, const Holder& memory) {
  using Half = phi::dtype::float16;
  using Brain = phi::dtype::bfloat16;
  const bool widens = type == DataType::FLOAT32;
  const auto convert = (widens ? TypeOf(*tensor) : type) == DataType::FLOAT16
                           ? (widens ? Convert<Half, float> : Convert<float, Half>)
                           : (widens ? Convert<Brain, float> : Convert<float, Brain>);
  convert(tensor, type, memory);
}

// While it lives, a kernel's 16-bit tensors have the type float32. Results of in-place operations keep their memory.
class Widened {
 public:
  Widened(const Tensors& inputs, const Tensors& outputs) {
    for (Tensor* tensor : outputs) outputs_.push_back({tensor, TypeOf(*tensor), tensor->Holder()});
    for (Tensor* tensor : inputs) {
      if (!IsHalf(TypeOf(*tensor))) continue;  // also a tensor that is an input twice
      inputs_.push_back({tensor, TypeOf(*tensor), tensor->Holder()});
      if (HasNumbers(*tensor)) Cast(tensor, DataType::FLOAT32, nullptr);
      else set_type(tensor, DataType::FLOAT32);  // the kernel reads only its shape
    }
  }
  ~Widened() {
    for (const auto& [tensor, type, memory] : outputs_)
      if (IsHalf(type) && TypeOf(*tensor) == DataType::FLOAT32 && HasNumbers(*tensor)) Cast(tensor, type, memory);
    for (const auto& [tensor, type, memory] : inputs_) {
      if (TypeOf(*tensor) != DataType::FLOAT32) continue;  // an output
      set_type(tensor, type);
      if (tensor->Holder() != memory) hold(tensor, memory);
    }
  }

 private:
  std::vector<std::tuple<Tensor*, DataType, Holder>> inputs_, outputs_;  // as they were
};

// An optimizer's kernel of float32 ignores the master weight, which is the parameter in float32. While a Master
// lives, the parameter has the values of the master weight; then the new values are copied to the master weight.
class Master {
 public:
  Master(bool has_master, const Tensors& inputs, const Tensors& outputs) : written_(nullptr), parameter_(nullptr) {
    if (!has_master || !IsCopy(*outputs.back(), *inputs[0]) || outputs.back() == outputs[0]) return;
    parameter_ = outputs[0];
    written_ = outputs.back();
    Copy(*written_, inputs[0]);
  }
  ~Master() {
    if (written_) Copy(*parameter_, written_);
  }

 private:
  static bool IsCopy(const Tensor& master, const Tensor& parameter) {
    return HasNumbers(master) && TypeOf(master) == DataType::FLOAT32 && CountOf(master) == CountOf(parameter);
  }
  static void Copy(const Tensor& from, Tensor* to) {
    std::memcpy(NumbersOf<float>(*to), NumbersOf<float>(from), CountOf(from) * sizeof(float));
  }
  Tensor *written_, *parameter_;
};

using List = std::vector<const Tensor*>;
using Word = uintptr_t;
using Collect = void (*)(Word, Tensors*);  // what adds the tensors of an argument
constexpr size_t kWords = 40, kDoubles = 8;
constexpr char kTensorName[] = "N3phi11DenseTensorE";  // its typeid would need a symbol of PaddlePaddle

void Add(const Tensor* tensor, Tensors* tensors) {
  if (tensor) tensors->push_back(const_cast<Tensor*>(tensor));
}

void Add(const List* list, Tensors* tensors) {
  if (list)
    for (const Tensor* tensor : *list) Add(tensor, tensors);
}

template <class Value>
void Add(const paddle::optional<Value>* value, Tensors* tensors) { Add(value->get_ptr(), tensors); }

template <class Argument>
void CollectFrom(Word word, Tensors* tensors) { Add(reinterpret_cast<const Argument*>(word), tensors); }

Collect CollectorOf(const std::string& name) {  // null for another type
  if (name == kTensorName || name == std::string("P") + kTensorName) return CollectFrom<Tensor>;
  if (name == typeid(paddle::optional<Tensor>).name()) return CollectFrom<paddle::optional<Tensor>>;
  if (name == typeid(List).name() || name == typeid(Tensors).name()) return CollectFrom<List>;
  return name == typeid(paddle::optional<List>).name() ? CollectFrom<paddle::optional<List>> : nullptr;
}

const std::set<std::string> kOptimizers = {"adam", "adamw", "momentum", "sgd"};

// A kernel of float32, and what is known of its arguments.
struct Float32Kernel {
  phi::Kernel kernel;
  std::vector<Collect> inputs, outputs;
  std::vector<size_t> types;  // which words are types
  size_t words, doubles;
  bool has_master;

  Float32Kernel(const phi::Kernel& kernel, const std::string& name)
      : kernel(kernel), words(1), doubles(0), has_master(kOptimizers.count(name)) {
    const auto& arguments = kernel.args_def();
    for (const auto& input : arguments.input_defs()) inputs.push_back(CollectorOf(input.type_index.name()));
    for (const auto& output : arguments.output_defs()) outputs.push_back(CollectorOf(output.type_index.name()));
    words += inputs.size();
    for (const auto& attribute : arguments.attribute_defs()) {
      const bool is_float = attribute.type_index == phi::AttributeType::FLOAT32 ||
                            attribute.type_index == phi::AttributeType::FLOAT64;
      if (attribute.type_index == phi::AttributeType::DATA_TYPE) types.push_back(words);
      ++(is_float ? doubles : words);
    }
    words += outputs.size();
  }
  bool IsSupported() const {
    return words <= kWords && doubles <= kDoubles && !std::count(inputs.begin(), inputs.end(), nullptr) &&
           !std::count(outputs.begin(), outputs.end(), nullptr);
  }
};

std::vector<Float32Kernel> float32_kernels;

// the index of the kernel that has been called
thread_local size_t current_kernel __attribute__((tls_model("initial-exec")));

template <class Each, size_t>
using Same = Each;

template <class, class>
struct Frame;

template <size_t... d, size_t... n>
struct Frame<std::index_sequence<d...>, std::index_sequence<n...>> {
  using Kernel = void (*)(Same<double, d>..., Same<Word, n>...);

  static void Run(Same<double, d>... doubles, Same<Word, n>... all) {
    const Float32Kernel& kernel_info = float32_kernels[current_kernel];
    Word words[] = {all...};
    Tensors inputs, outputs;
    for (size_t k = 0; k < kernel_info.inputs.size(); ++k) kernel_info.inputs[k](words[1 + k], &inputs);
    const Word* written = words + kernel_info.words - kernel_info.outputs.size();
    for (size_t k = 0; k < kernel_info.outputs.size(); ++k) kernel_info.outputs[k](written[k], &outputs);
    for (size_t k : kernel_info.types)
      if (IsHalf(static_cast<DataType>(words[k]))) words[k] = static_cast<Word>(DataType::FLOAT32);
    const Widened widened(inputs, outputs);
    const Master master(kernel_info.has_master && words[kernel_info.words - 1], inputs, outputs);
    kernel_info.kernel.GetVariadicKernelFn<Kernel>()(doubles..., words[n]...);
  }
  template <size_t i>
  static void Enter(Same<double, d>... doubles, Same<Word, n>... all) {
    current_kernel = i;
    Run(doubles..., all...);  // with the same arguments in the same places, so that this is a jump
  }
};

using FullFrame = Frame<std::make_index_sequence<kDoubles>, std::make_index_sequence<kWords>>;

// Run a kernel that a static graph calls.
void RunInContext(const Float32Kernel& kernel_info, phi::KernelContext* context) {
  Tensors inputs, outputs;
  for (size_t k = 0; k < context->InputsSize(); ++k)
    CollectFrom<Tensor>(reinterpret_cast<Word>(context->MutableInputAt(k)), &inputs);
  for (size_t k = 0; k < context->OutputsSize(); ++k)
    CollectFrom<Tensor>(reinterpret_cast<Word>(context->MutableOutputAt(k)), &outputs);
  const Widened widened(inputs, outputs);
  kernel_info.kernel(context);
}

constexpr size_t kKernels = 1024;

template <size_t... i>
FullFrame::Kernel Entry(size_t number, std::index_sequence<i...>) {
  static constexpr FullFrame::Kernel all[] = {FullFrame::Enter<i>...};
  return all[number];
}

using Registered = void (*)(phi::CustomKernelMap*, const std::string&, const phi::KernelKey&, const phi::Kernel&);

// Register kernels for 16-bit floats if the CPU has one for float32 but none for them, or only one without master
// weights.
void Register(phi::KernelFactory* factory, phi::CustomKernelMap* custom_kernels, Registered add) {
  for (auto& [name, kernels] : factory->kernels()) {
    std::vector<DataType> missing = {DataType::FLOAT16, DataType::BFLOAT16};
    const phi::Kernel* float32_kernel = nullptr;
    std::vector<phi::Kernel*> replaced;
    for (auto& [key, kernel] : kernels) {
      if (key.backend() != phi::Backend::CPU || key.layout() != phi::DataLayout::ALL_LAYOUT) continue;
      if (key.dtype() == DataType::FLOAT32) float32_kernel = &kernel;
      if (IsHalf(key.dtype()) && kOptimizers.count(name)) replaced.push_back(&kernel);
      missing.erase(std::remove(missing.begin(), missing.end(), key.dtype()), missing.end());
    }
    if (!float32_kernel || (missing.empty() && replaced.empty()) || float32_kernels.size() == kKernels) continue;
    float32_kernels.emplace_back(*float32_kernel, name);
    if (!float32_kernels.back().IsSupported()) {
      float32_kernels.pop_back();
      continue;
    }
    const size_t number = float32_kernels.size() - 1;
    const auto in_context = [number](phi::KernelContext* context) { RunInContext(float32_kernels[number], context); };
    const auto entry = Entry(number, std::make_index_sequence<kKernels>());
    phi::Kernel half_kernel(in_context, reinterpret_cast<void*>(entry));
    *half_kernel.mutable_args_def() = float32_kernel->args_def();
    for (phi::Kernel* kernel : replaced) *kernel = half_kernel;
    for (DataType type : missing)
      add(custom_kernels, name, {phi::Backend::CPU, phi::DataLayout::ALL_LAYOUT, type}, half_kernel);
  }
}

}  // namespace xdevice::half
