// Virtual GPUs for torch: compiled at first use, and loaded by compiled/__init__.py.
//
// The device type is a parameter: PrivateUse1, named vgpu, or CUDA while the virtual GPUs stand in for CUDA's.
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <set>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#include <pthread.h>
#define EXPORT
#endif

#include "kernels.h"

namespace xdevice {
namespace {

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

// Operations that torch has for the CPU alone: quantized layers, and those of oneDNN and MKL. Of the others that a build
// for the CPU does not have for CUDA, a library's may have kernels for CUDA in another build of it.
void register_cpus_own() {
  const std::set<std::string> spaces{"quantized", "_quantized", "onednn", "mkldnn", "mkldnn_prepacked", "mkl", "sparse"};
  const std::set<std::string> on_cuda{"quantized::embedding_bag_byte_unpack", "quantized::embedding_bag_4bit_unpack",
      "quantized::embedding_bag_byte_rowwise_offsets", "quantized::embedding_bag_4bit_rowwise_offsets"};
  for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(c10::DispatchKey::CPU)) {
    std::string full = toString(name), space = full.substr(0, full.find(':'));
    bool mkldnn = full == "aten::to_mkldnn" || full.rfind("aten::mkldnn_", 0) == 0;
    if (mkldnn ? full.rfind("aten::mkldnn_rnn_layer", 0) == 0 : !spaces.count(space) || on_cuda.count(full)) continue;
    library(space.c_str(), KEY).impl(full.c_str(), boxed<&only_on_cpu>());
  }
}

// An operation of an extension that the program has compiled for the CPU alone.
void leave_on_cpu(const std::string& full) {
  library(full.substr(0, full.find(':')).c_str(), KEY).impl(full.c_str(), boxed<&only_on_cpu>());
}

void register_operations() {
  library("_", KEY).fallback(boxed<&compute>());
  auto& ours = library("aten", KEY);
  for (const auto& name : not_composed(direct())) ours.impl(name.c_str(), boxed<&compute>());
  cover();
  ours.impl("_convolution", boxed<&convolve>());
  // composed of others; in a build with CUDA 2.15 asks the driver, too
  for (auto* name : {"_validate_sparse_coo_tensor_args", "_validate_sparse_compressed_tensor_args"})
    ours.impl(name, boxed<&compute>());
  if (KEY == c10::DispatchKey::CUDA) register_cpus_own();
  // of two kernels, the later one counts
  for (auto* name : {"as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "is_set_to"})
    ours.impl(name, boxed<&on_sizes<>>());
  for (std::string name : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"})
    for (const auto& each : {name, name + ".Tensor"})
      if (c10::Dispatcher::singleton().findSchema(torch::jit::parseName("aten::" + each)))
        ours.impl(each.c_str(), boxed<&no>());
  ours.impl("empty.memory_format", &empty);
  ours.impl("empty_strided", &empty_strided);
  ours.impl("_efficientzerotensor", &zeros);
  ours.impl("native_dropout", &dropout);
  ours.impl("native_dropout_backward", &dropout_backward);
  ours.impl("record_stream", &record_stream);
  for (auto* name : {"_softmax", "_log_softmax"}) ours.impl(name, boxed<&widened>());
  for (auto* name : {"_softmax_backward_data", "_log_softmax_backward_data"}) ours.impl(name, boxed<&narrowed>());
  auto& autograd = library("aten", c10::getAutogradKeyFromBackend(c10::toBackendComponent(KEY)));
  for (auto* each : {&ours, &autograd}) {  // autograd differentiates these as what they are composed of
    each->impl("lstm.input", &lstm_of_layers);
    each->impl("_thnn_fused_lstm_cell", &lstm);
    each->impl("_thnn_fused_gru_cell", &gru);
  }
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
  // what torch computes from sizes and strides, or for tensors on any device: it takes virtual tensors as they are
  for (auto* name : {"_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets", "_to_copy",
           "empty_like", "is_pinned", "_pin_memory"})
    nested.impl(name, boxed<&on_sizes<Key::NestedTensorCPU>>());
  for (auto* name : {"_nested_view_from_buffer", "_nested_from_padded"})
    library("aten", KEY).impl(name, boxed<&on_sizes<>>());
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
  for (auto* schema : {"mixed(str operation, Device a, Device b) -> ()", "until(int device) -> float",
           "look(str operation, Tensor?[] tensors, bool flag) -> ()", "wait(float until) -> ()", "place() -> int",
           "misused(int how, int place) -> ()", "method(str operation) -> str", "host(Tensor x) -> Tensor",
           "take(Tensor host, int index) -> Tensor", "refresh(Tensor x) -> ()"})
    ours.def(schema);
#define REDUCTION "__torch__.torch.classes.c10d.ReduceOp"
  ours.def("reduction(" REDUCTION " op) -> (int, Tensor?, " REDUCTION ")", &reduction);
  ours.impl("host", torch::dispatch(KEY, &host));
  ours.impl("take", torch::dispatch(c10::DispatchKey::CPU, &take));
  ours.impl("refresh", torch::dispatch(KEY, &refresh));
}

// ---- the functions that Python calls: compiled/__init__.py declares them with their types ----

struct Quiet : c10::WarningHandler {  // of torch, that kernels are replaced
  void process(const c10::Warning&) override {}
};

template <class F>
const char* error_of(F call) {
  static thread_local std::string text;
  Quiet quiet;
  c10::WarningUtils::WarningHandlerGuard silence(&quiet);
  try {
    call();
    return nullptr;
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = error.what();
  }
  return text.c_str();
}
}  // namespace
}  // namespace xdevice

extern "C" {
using namespace xdevice;

// Functions that return a text return an error, or a null pointer.
EXPORT const char* xdevice_begin(int n, bool cuda, int64_t bytes, bool enforced) {
  return error_of([&] {
    if (cuda) TYPE = c10::DeviceType::CUDA, KEY = c10::DispatchKey::CUDA;
    count = n, capacity = bytes;
    if (enforced)
      for (auto& each : accounting) each.limit = bytes;
    answer();
    register_operations();
    register_kinds();
    register_for_python();
    c10d::TimerRegistry()->Register(  // for DistributedDataParallel: the CPU's serves
        TYPE, [](Device) { return c10d::TimerRegistry()->Create(kCPU, Device(kCPU)); }, c10::REGISTRY_PREFERRED);
    if (cuda) at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
#ifndef _WIN32
    pthread_atfork(nullptr, nullptr, [] { forked = used.load(); });
#endif
  });
}

EXPORT const char* xdevice_leave_on_cpu(const char* operation) {
  return error_of([&] { leave_on_cpu(operation); });
}
EXPORT const char* xdevice_cover() { return error_of(cover); }  // after operations were added
EXPORT const char* xdevice_resize_storage(void* storage, int64_t bytes) {
  return error_of([&] { resize(static_cast<c10::StorageImpl*>(storage), bytes); });
}
EXPORT int xdevice_current() { return current; }
EXPORT int xdevice_exchange(int index) {  // which exists; a negative one changes nothing
  int before = current;
  if (index >= 0) current = index, used = true;
  return before;
}
EXPORT bool xdevice_is_used() { return used; }
EXPORT bool xdevice_is_forked() { return forked; }
EXPORT void xdevice_use(bool whether) { used = whether; }
EXPORT void xdevice_show(int n) { count = n; }
EXPORT int64_t xdevice_pending() { return next_pending(); }
EXPORT void xdevice_check(int what, bool whether) { whether ? checks |= what : checks &= ~what; }
EXPORT int xdevice_pin(uintptr_t pointer, int64_t bytes) {  // of the program's own memory; 0 bytes: no longer
  at::globalContext().lazyInitDevice(TYPE);  // before, torch says that nothing is pinned
  return pinned.note(pointer, bytes);
}
EXPORT void xdevice_alert(const char* operation, const char* caller, const char* argument, const char* value) {
  alerts[operation] = {caller, argument, value};
}
EXPORT void xdevice_differ(const char* name, const char* reduce, const char* words, uint64_t on_cuda, uint64_t on_cpu) {
  Dtypes& row = dtypes[name];
  row.on_cpu |= on_cpu;
  if (on_cuda) row.on_cuda.push_back({reduce, words, on_cuda}), refusing = true;
}
EXPORT int64_t xdevice_allocated(int index) { return accounting[index].now; }
EXPORT int64_t xdevice_peak(int index) { return accounting[index].peak; }
EXPORT void xdevice_limit(int index, int64_t bytes) { accounting[index].limit = bytes; }
EXPORT void xdevice_reset_peak(int index) { memory.resetPeakStats(index); }
}
