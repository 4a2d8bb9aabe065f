// Virtual GPUs for torch, compiled at first use and loaded by plug_in.py.
//
// The device type is a parameter: PrivateUse1, named vgpu, or CUDA while the virtual GPUs stand in for CUDA's.
#include <ATen/native/TensorFactories.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

#include <set>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#include <pthread.h>
#define EXPORT
#endif

#include "rnn.h"

namespace xdevice {
namespace {

void check_dense(const std::optional<Layout>& layout, std::optional<bool> pin) {
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(kStrided) == kStrided,
      layout.value_or(kStrided), " tensors are not supported on virtual GPUs; make it on the CPU");
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
}

ScalarType known(std::optional<ScalarType> type) { return type.value_or(get_default_dtype_as_scalartype()); }

// As on the CPU and on CUDA: where deterministic algorithms are wanted, memory begins as NaN, or the largest integers.
Tensor filled(Tensor made) {
  const auto& now = at::globalContext();
  if (C10_UNLIKELY(now.deterministicAlgorithms() && now.deterministicFillUninitializedMemory()))
    at::native::fill_empty_deterministic_(made);
  return made;
}

Tensor empty(IntArrayRef size, std::optional<ScalarType> type, std::optional<Layout> layout, std::optional<Device> d,
             std::optional<bool> pin, std::optional<MemoryFormat> format) {
  check_dense(layout, pin);
  c10::OptionalDeviceGuard guard(d);
  return filled(at::detail::empty_generic(size, &memory, DispatchKeySet(KEY), known(type), format));
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> type,
                     std::optional<Layout> layout, std::optional<Device> d, std::optional<bool> pin) {
  check_dense(layout, pin);
  c10::OptionalDeviceGuard guard(d);
  return filled(at::detail::empty_strided_generic(size, stride, &memory, DispatchKeySet(KEY), known(type)));
}

// torch's lazy zeros have no memory, and only its own kernels can read them.
Tensor zeros(IntArrayRef size, std::optional<ScalarType> type, std::optional<Layout> layout, std::optional<Device> d,
             std::optional<bool> pin) {
  return empty(size, type, layout, d, pin, std::nullopt).zero_();
}

// Equal to the CPU's dropout bit for bit: the noise is drawn and scaled before the multiplication.
std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p == 0) return {x.clone(), at::ones_like(x, kBool)};
  Tensor noise = at::empty_like(x).bernoulli_(1 - p).div_(1 - p);
  return {x.mul(noise), noise.to(kBool)};
}

Tensor dropout_backward(const Tensor& grad, const Tensor& mask, double scale) {
  if (auto row = dtypes.find("native_dropout_backward"); row != dtypes.end())
    refuse_as_cuda({&row->second}, grad.scalar_type(), nullptr);
  Tensor noise = mask.to(grad.scalar_type());
  return grad.mul(scale ? noise.div_(1 / scale) : noise.mul_(0));
}

// The host's aliases of virtual tensors on one device, and the way back.
struct Aliases {
  AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard full{c10::DispatchKey::AutocastCPU};
  const char* operation;
  std::optional<Device> here;

  explicit Aliases(const char* name) : operation(name) { check_usable(); }
  Tensor in(const Tensor& t) {
    if (!t.defined()) return t;
    if (!here) here = t.device();
    if (t.device() != *here || here->type() != TYPE) mixed(operation, *here, t.device());
    return like(t, host_of(t.storage()), c10::DispatchKey::CPU);
  }
  Tensor out(const Tensor& t) { return t.defined() ? like(t, virtual_of(t.storage(), here->index()), KEY) : t; }
};

// For GPUs alone torch lets softmax widen half precision, and its backward narrow it again.
template <auto& call>
Tensor widened(const Tensor& x, int64_t dim, bool widen) {
  Aliases aliases("aten::softmax");
  Tensor host = aliases.in(x);
  return aliases.out(call(widen ? host.to(kFloat) : host, dim, false));
}

template <auto& call>
Tensor narrowed(const Tensor& grad, const Tensor& output, int64_t dim, ScalarType type) {
  Aliases aliases("aten::softmax_backward");
  return aliases.out(call(aliases.in(grad), aliases.in(output), dim, grad.scalar_type()).to(type));
}

void record_stream(Tensor&, Stream) {}

// Whether a library for GPUs computes this: none does.
void no(const c10::OperatorHandle& op, Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, false);
}

std::vector<std::string> questions() {
  std::vector<std::string> found;
  for (auto* library : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"})
    for (auto* overload : {"", "Tensor"})
      if (c10::Dispatcher::singleton().findSchema({std::string("aten::") + library, overload}))
        found.push_back(std::string(library) + (*overload ? "." : "") + overload);
  return found;
}

// Adds ATen's operations with a kernel for that key.
void note(std::set<std::string>& names, c10::DispatchKey key) {
  for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key))
    if (name.getNamespace() == "aten") names.insert(toString(name).substr(6));
}

// Operations that torch would otherwise compose from others, which round differently from the CPU's, or compute
// for its own devices alone.
std::set<std::string> direct() {
  auto& all = c10::Dispatcher::singleton();
  std::set<std::string> names{"copy_", "_convolution", "convolution_backward", "silu_backward", "mish_backward",
      "mode.values"};
  for (auto key : {c10::DispatchKey::CompositeExplicitAutogradNonFunctional, c10::DispatchKey::CompositeExplicitAutograd})
    for (const auto& name : all.getRegistrationsForDispatchKey(key)) {
      auto op = all.findOp(name);
      if (op && name.getNamespace() == "aten" && op->hasKernelForDispatchKey(c10::DispatchKey::CPU))
        names.insert(toString(name).substr(6));
    }
  note(names, KEY);  // a build with CUDA has kernels of its own
  return names;
}

torch::Library& library(const char* space, c10::DispatchKey key) {
  return *new torch::Library(torch::Library::IMPL, space, key, __FILE__, __LINE__);  // lasts as long as the process
}

template <auto kernel>
auto boxed() {
  return torch::CppFunction::makeFromBoxedFunction<kernel>();
}

// In a build with CUDA, operations that have a kernel for it, and for the CPU are composed of others, such as
// _fused_rms_norm: composed here too, above autograd, since there is no kernel of the CPU's to differentiate. Returns
// the names of all others.
std::vector<std::string> not_composed(const std::set<std::string>& names) {
  auto autograd = c10::getAutogradKeyFromBackend(c10::toBackendComponent(KEY));
  std::vector<std::string> others;
  for (const auto& name : names) {
    auto op = c10::Dispatcher::singleton().findOp(torch::jit::parseName("aten::" + name));
    bool composed = op && op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    if (!composed || op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) others.push_back(name);
    else for (auto key : {KEY, autograd}) library("aten", key).impl(name.c_str(), boxed<&on_sizes<>>());
  }
  return others;
}

// Kernels for CUDA of libraries, such as torchvision's, and of torch's other namespaces: the CPU's take their place.
void cover() {
  auto& all = c10::Dispatcher::singleton();
  static std::set<std::string> covered;
  for (const auto& name : all.getRegistrationsForDispatchKey(KEY)) {
    std::string full = toString(name), space = full.substr(0, full.find(':'));
    auto op = all.findOp(name);
    if (space == "aten" || space == "c10d" || !op || !covered.insert(full).second) continue;  // c10d's are in Python
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd))
      library(space.c_str(), KEY).impl(full.c_str(), boxed<&compute>());
  }
}

void register_operations() {
  library("_", KEY).fallback(boxed<&compute>());
  auto& ours = library("aten", KEY);
  for (const auto& name : not_composed(direct())) ours.impl(name.c_str(), boxed<&compute>());
  cover();
  // of two kernels, the later one counts
  for (auto* name : {"as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "is_set_to"})
    ours.impl(name, boxed<&on_sizes<>>());
  for (auto& name : questions()) ours.impl(name.c_str(), boxed<&no>());
  ours.impl("empty.memory_format", &empty);
  ours.impl("empty_strided", &empty_strided);
  ours.impl("_efficientzerotensor", &zeros);
  ours.impl("native_dropout", &dropout);
  ours.impl("native_dropout_backward", &dropout_backward);
  ours.impl("record_stream", &record_stream);
  ours.impl("_softmax", &widened<at::_softmax>);
  ours.impl("_log_softmax", &widened<at::_log_softmax>);
  ours.impl("_softmax_backward_data", &narrowed<at::_softmax_backward_data>);
  ours.impl("_log_softmax_backward_data", &narrowed<at::_log_softmax_backward_data>);
  register_rnn(ours, library("aten", c10::getAutogradKeyFromBackend(c10::toBackendComponent(KEY))));
}

// The algorithm of attention for tensors that torch traces: the CPU's choice, where torch has kernels of CUDA's only.
int64_t choose_attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask, double p,
                         bool causal, std::optional<double> scale, bool grouped) {
  return at::native::_fused_sdp_choice_stub.DEFAULT(q, k, v, mask, p, causal, scale, grouped);
}

// Tensors of another kind than dense: the names of what torch has for them on the CPU, and of all that it has for KEY,
// on a build with CUDA.
template <auto kernel>
void register_kind(c10::DispatchKey kind, bool as_on_cpu) {
  auto key = c10::toRuntimePerBackendFunctionalityKey(kind, c10::toBackendComponent(KEY));
  std::set<std::string> names;
  note(names, key);
  if (as_on_cpu) note(names, c10::toRuntimePerBackendFunctionalityKey(kind, c10::BackendComponent::CPUBit));
  library("_", key).fallback(boxed<kernel>());
  auto& ours = library("aten", key);
  for (const auto& name : names) ours.impl(name.c_str(), boxed<kernel>());
}

void register_kinds() {
  using Key = c10::DispatchKey;
  for (auto kind : {Key::Sparse, Key::SparseCsr, Key::NestedTensor}) register_kind<&compute>(kind, true);
  register_kind<&refuse>(Key::Quantized, false);
  auto& nested = library("aten", c10::toRuntimePerBackendFunctionalityKey(Key::NestedTensor, c10::toBackendComponent(KEY)));
  for (auto* name : ON_NESTED_SIZES) nested.impl(name, boxed<&on_sizes<Key::NestedTensorCPU>>());
  for (auto* name : TO_NESTED) library("aten", KEY).impl(name, boxed<&on_sizes<>>());
}

// What Python needs: the memory of a virtual tensor as a CPU tensor, the way back, and an error to raise.
Tensor host(const Tensor& x) { return like(x, host_of(x.storage()), c10::DispatchKey::CPU); }

Tensor take(const Tensor& host, int64_t index) { return like(host, virtual_of(host.storage(), index), KEY); }

void refresh(const Tensor& x) {  // after the CPU storage of its memory was given other memory
  auto* s = x.storage().unsafeGetStorageImpl();
  Storage own = host_of(x.storage());
  if (s->data() != own.data() || s->nbytes() != own.nbytes()) take_over(s, own, s->device().index());
}

using Reduction = c10::intrusive_ptr<c10d::ReduceOp>;

// The number of a reduction of torch.distributed's, the factor of PREMUL_SUM, and the sum in it and in an average.
std::tuple<int64_t, std::optional<Tensor>, Reduction> reduction(const Reduction& op) {
  const bool scaled = op->op_ == c10d::ReduceOp::PREMUL_SUM;
  if (!scaled && op->op_ != c10d::ReduceOp::AVG) return {op->op_, std::nullopt, op};
  std::optional<Tensor> factor;
  if (scaled) {
    auto& given = *static_cast<c10d::NCCLPreMulSumSupplement*>(op->supplement_.get());
    factor = given.tensor_factor.defined() ? given.tensor_factor : at::scalar_tensor(given.double_factor, kDouble);
  }
  return {op->op_, factor, c10::make_intrusive<c10d::ReduceOp>(c10d::ReduceOp::SUM)};
}

void register_for_python() {
  auto& ours = *new torch::Library(torch::Library::DEF, "xdevice_virtual", std::nullopt, __FILE__, __LINE__);
  ours.def("mixed(str operation, Device a, Device b) -> ()");
  ours.def("look(str operation, Tensor?[] tensors, bool flag) -> ()");
  ours.def("until(int device) -> float");
  ours.def("wait(float until) -> ()");
  ours.def("place() -> int");
  ours.def("misused(int how, int place) -> ()");
  ours.def("host(Tensor x) -> Tensor");
  ours.def("take(Tensor host, int index) -> Tensor");
  ours.def("refresh(Tensor x) -> ()");
#define REDUCTION "__torch__.torch.classes.c10d.ReduceOp"
  ours.def("reduction(" REDUCTION " op) -> (int, Tensor?, " REDUCTION ")", &reduction);
  ours.impl("host", torch::dispatch(KEY, &host));
  ours.impl("take", torch::dispatch(c10::DispatchKey::CPU, &take));
  ours.impl("refresh", torch::dispatch(KEY, &refresh));
}

// DistributedDataParallel takes times with a timer of the device type; the CPU's serves.
void register_timer() {
  c10d::TimerRegistry()->Register(
      TYPE, [](Device) { return c10d::TimerRegistry()->Create(kCPU, Device(kCPU)); }, c10::REGISTRY_PREFERRED);
}
}  // namespace
}  // namespace xdevice

#include "exports.h"
