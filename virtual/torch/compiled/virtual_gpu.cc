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

#include "attention.h"
#include "kernels.h"
#include "permutations.h"
#include "recurrent.h"
#include "rejection.h"
#include "rms_norm.h"
#include "sampling.h"

namespace xdevice {
namespace {

// Adds the names of ATen's operations with a kernel for that key.
void add_names(std::set<std::string>& names, c10::DispatchKey key) {
  for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key))
    if (name.getNamespace() == "aten") names.insert(toString(name).substr(6));
}

// Operations that torch would otherwise compose from others, which round differently from the CPU's kernel, or that it
// has for its own devices only.
std::set<std::string> not_to_compose() {
  auto& all = c10::Dispatcher::singleton();
  std::set<std::string> names{"copy_", "_convolution", "convolution_backward", "silu_backward", "mish_backward",
      "mode.values"};
  for (auto key : {c10::DispatchKey::CompositeExplicitAutogradNonFunctional, c10::DispatchKey::CompositeExplicitAutograd})
    for (const auto& name : all.getRegistrationsForDispatchKey(key)) {
      auto op = all.findOp(name);
      if (op && name.getNamespace() == "aten" && op->hasKernelForDispatchKey(c10::DispatchKey::CPU))
        names.insert(toString(name).substr(6));
    }
  add_names(names, KEY);  // a build with CUDA has kernels of its own
  return names;
}

torch::Library& library(const char* space, c10::DispatchKey key) {
  return *new torch::Library(torch::Library::IMPL, space, key, __FILE__, __LINE__);  // lasts as long as the process
}

template <auto kernel>
auto boxed() {
  return torch::CppFunction::makeFromBoxedFunction<kernel>();
}

// A build with CUDA has kernels of operations, such as _fused_rms_norm, that the CPU composes of others. These are
// composed here too, above autograd, since there is no kernel of the CPU to differentiate. Returns the names of all
// others.
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

// Replaces the kernels for CUDA of libraries, such as torchvision, and of torch's other namespaces by the CPU's.
void replace_kernels_of_libraries() {
  auto& all = c10::Dispatcher::singleton();
  static std::set<std::string> replaced;
  for (const auto& name : all.getRegistrationsForDispatchKey(KEY)) {
    std::string full = toString(name), space = full.substr(0, full.find(':'));
    auto op = all.findOp(name);
    if (space == "aten" || space == "c10d" || !op || !replaced.insert(full).second) continue;  // c10d's are in Python
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd))
      library(space.c_str(), KEY).impl(full.c_str(), boxed<&compute>());
  }
}

// Refuses operations that torch has for the CPU only: quantized layers, and those of oneDNN and MKL. Other
// operations may have kernels for CUDA in a build of their library for CUDA.
void refuse_operations_of_the_cpu() {
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
  for (const auto& name : not_composed(not_to_compose())) ours.impl(name.c_str(), boxed<&compute>());
  replace_kernels_of_libraries();
  ours.impl("_convolution", boxed<&convolve>());
  // composed of others; in a build with CUDA 2.15 asks the driver, too
  for (auto* name : {"_validate_sparse_coo_tensor_args", "_validate_sparse_compressed_tensor_args"})
    ours.impl(name, boxed<&compute>());
  if (KEY == c10::DispatchKey::CUDA) refuse_operations_of_the_cpu();
  // of two kernels, the later one counts
  for (auto* name : {"as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "is_set_to"})
    ours.impl(name, boxed<&on_sizes<>>());
  for (std::string name : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"})
    for (const auto& each : {name, name + ".Tensor"})
      if (c10::Dispatcher::singleton().findSchema(torch::jit::parseName("aten::" + each)))
        ours.impl(each.c_str(), boxed<&return_false>());
  ours.impl("empty.memory_format", &empty);
  ours.impl("empty_strided", &empty_strided);
  ours.impl("_efficientzerotensor", &zeros);
  ours.impl("native_dropout", &dropout);
  ours.impl("native_dropout_backward", &dropout_backward);
  ours.impl("record_stream", &record_stream);
  for (auto* name : {"_softmax", "_log_softmax"}) ours.impl(name, boxed<&widened>());
  for (auto* name : {"_softmax_backward_data", "_log_softmax_backward_data"}) ours.impl(name, boxed<&narrowed>());
  auto& autograd = library("aten", c10::getAutogradKeyFromBackend(c10::toBackendComponent(KEY)));
  for (auto* each : {&ours, &autograd}) {  // autograd differentiates the operations that these are composed of
    each->impl("lstm.input", &lstm_with_onednn);
    each->impl("_thnn_fused_lstm_cell", &lstm);
    each->impl("_thnn_fused_gru_cell", &gru);
  }
}

// Random numbers as CUDA draws them. torch's own functions take virtual tensors as they are: they check the arguments,
// and call the kernels of random.h in the place of CUDA's.
void register_random() {
  random::replace_kernels();
  random::replace_sampling();
  auto& ours = library("aten", KEY);
  for (auto* name : {"uniform_", "normal_", "normal.Tensor_float", "normal.Tensor_float_out", "normal.float_Tensor",
           "normal.float_Tensor_out", "normal.Tensor_Tensor", "normal.Tensor_Tensor_out", "log_normal_", "exponential_",
           "cauchy_", "geometric_", "bernoulli.out", "bernoulli_.float", "bernoulli_.Tensor", "random_", "random_.from",
           "random_.to", "multinomial", "multinomial.out"})
    ours.impl(name, boxed<&on_sizes<>>());
  ours.impl("poisson", &random::poisson);
  ours.impl("binomial", &random::binomial);
  ours.impl("_standard_gamma", &random::gamma);
  ours.impl("_sample_dirichlet", &random::dirichlet);
  ours.impl("randperm.generator_out", &random::permutation_out);
  ours.impl("native_dropout", &random::dropout);
  ours.impl("rrelu_with_noise", &random::rrelu);
  ours.impl("rrelu_with_noise_", &random::rrelu_);
  ours.impl("rrelu_with_noise.out", &random::rrelu_out);
  for (auto key : {KEY, c10::getAutogradKeyFromBackend(c10::toBackendComponent(KEY))})
    random::replace_recurrent_layers(library("aten", key));
}

// The algorithm of attention for tensors that torch traces: the CPU's choice. torch would consider CUDA's kernels only.
// For those that vmap batches it is the one without fusion, as vmap would call CUDA's kernel by the name of flash.
int64_t choose_attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask, double p,
                         bool causal, std::optional<double> scale, bool grouped) {
  if (q.key_set().has(c10::DispatchKey::FuncTorchBatched)) return int64_t(at::SDPBackend::math);
  return at::native::_fused_sdp_choice_stub.DEFAULT(q, k, v, mask, p, causal, scale, grouped);
}

// Registers a kernel for all operations on tensors of another kind than dense: those that torch has for the CPU,
// and in a build with CUDA those that it has for KEY.
template <auto kernel>
void register_kind(c10::DispatchKey kind, bool as_on_cpu) {
  auto key = c10::toRuntimePerBackendFunctionalityKey(kind, c10::toBackendComponent(KEY));
  std::set<std::string> names;
  add_names(names, key);
  if (as_on_cpu) add_names(names, c10::toRuntimePerBackendFunctionalityKey(kind, c10::BackendComponent::CPUBit));
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

// To be called when the measuring of a program begins: nothing is computed that only values depend on.
void stop_computing() {
  computing = false;
  untouched::separate();
  auto& on_gpus = library("aten", KEY);
  for (auto* name : {"bernoulli.out", "bernoulli_.Tensor", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet",
           "rrelu_with_noise", "rrelu_with_noise_", "rrelu_with_noise.out"})
    on_gpus.impl(name, boxed<&compute>());
  auto& on_cpu = library("aten", c10::DispatchKey::CPU);
  on_cpu.impl("normal_", &values::normal);
  on_cpu.impl("uniform_", &values::uniform);
  on_cpu.impl("copy_", &values::copy);
}

// Operations for Python: the memory of a virtual tensor as a CPU tensor, and that of a CPU tensor as a virtual one.
Tensor host(const Tensor& x) { return like(x, host_of(x.storage()), c10::DispatchKey::CPU); }

Tensor take(const Tensor& host, int64_t index) { return like(host, virtual_of(host.storage(), index), KEY); }

// Updates a virtual tensor after its CPU storage has got other memory.
void refresh(const Tensor& x) {
  auto* s = x.storage().unsafeGetStorageImpl();
  Storage host = host_of(x.storage());
  if (s->data() != host.data() || s->nbytes() != host.nbytes()) take_over(s, host, s->device().index());
}

using Reduction = c10::intrusive_ptr<c10d::ReduceOp>;

// The number of a reduction of torch.distributed, the factor of PREMUL_SUM, and the reduction without the factor.
// In place of PREMUL_SUM and AVG the latter is a sum.
std::tuple<int64_t, std::optional<Tensor>, Reduction> reduction(const Reduction& op) {
  const bool scaled = op->op_ == c10d::ReduceOp::PREMUL_SUM;
  if (!scaled && op->op_ != c10d::ReduceOp::AVG) return {op->op_, std::nullopt, op};
  std::optional<Tensor> factor;
  if (scaled) {
    auto& supplement = *static_cast<c10d::NCCLPreMulSumSupplement*>(op->supplement_.get());
    factor = supplement.tensor_factor.defined() ? supplement.tensor_factor
                                                : at::scalar_tensor(supplement.double_factor, kDouble);
  }
  return {op->op_, factor, c10::make_intrusive<c10d::ReduceOp>(c10d::ReduceOp::SUM)};
}

void register_for_python() {
  auto& ours = *new torch::Library(torch::Library::DEF, "xdevice_virtual", std::nullopt, __FILE__, __LINE__);
  for (auto* schema : {"mixed(str operation, Device a, Device b) -> ()", "busy_until(int device) -> float",
           "report_copies(str operation, Tensor?[] tensors, bool flag) -> ()", "wait_until(float time) -> ()",
           "current_line() -> int", "read_without_values(str operation, bool decides, bool is_integer) -> ()",
           "report_misuse(int misuse, int line) -> ()", "method(str operation, str key) -> str", "host(Tensor x) -> Tensor",
           "take(Tensor host, int index) -> Tensor", "refresh(Tensor x) -> ()"})
    ours.def(schema);
#define REDUCTION "__torch__.torch.classes.c10d.ReduceOp"
  ours.def("reduction(" REDUCTION " op) -> (int, Tensor?, " REDUCTION ")", &reduction);
  random::register_attention(ours);
  ours.impl("host", torch::dispatch(KEY, &host));
  ours.impl("take", torch::dispatch(c10::DispatchKey::CPU, &take));
  ours.impl("refresh", torch::dispatch(KEY, &refresh));
}

// ---- the functions that Python calls: compiled/__init__.py declares them with their types ----

template <class F>
const char* error_of(F call) {
  static thread_local std::string text;
  random::IgnoreWarnings handler;
  c10::WarningUtils::WarningHandlerGuard guard(&handler);
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
EXPORT const char* xdevice_begin(int n, bool cuda, int64_t bytes, bool limited) {
  return error_of([&] {
    if (cuda) TYPE = c10::DeviceType::CUDA, KEY = c10::DispatchKey::CUDA;
    count = n, capacity = bytes;
    for (int i = 0; i < n; ++i) {
      accounting[i].caching = cuda;
      if (limited) accounting[i].limit = bytes;
    }
    replace_hooks();
    register_operations();
    if (cuda) register_random();
    register_kinds();
    register_for_python();
    c10d::TimerRegistry()->Register(  // for DistributedDataParallel: the CPU's serves
        TYPE, [](Device) { return c10d::TimerRegistry()->Create(kCPU, Device(kCPU)); }, c10::REGISTRY_PREFERRED);
    if (cuda) at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
#ifndef _WIN32
    pthread_atfork(nullptr, nullptr, [] { forked = used || counted; });
#endif
  });
}

EXPORT const char* xdevice_leave_on_cpu(const char* operation) {
  return error_of([&] { leave_on_cpu(operation); });
}
// To be called after a library has added operations.
EXPORT const char* xdevice_replace_kernels_of_libraries() { return error_of(replace_kernels_of_libraries); }
EXPORT const char* xdevice_resize_storage(void* storage, int64_t bytes) {
  return error_of([&] { resize(static_cast<c10::StorageImpl*>(storage), bytes); });
}
EXPORT void xdevice_model(int64_t multiprocessors, int64_t threads_of_each, int capability) {
  random::multiprocessors = {multiprocessors, threads_of_each};
  workspaces::capability = capability;
}
EXPORT void xdevice_draw_as_before_2_7(bool value) { random::as_before_2_7 = value; }
EXPORT int xdevice_current() { return current; }
EXPORT int xdevice_exchange(int index) {  // of a device that exists; a negative one changes nothing
  int previous = current;
  if (index >= 0) used = true;
  if (index >= 0 && index != previous) current = index, make_context(current);
  return previous;
}
EXPORT bool xdevice_is_used() { return used; }
EXPORT bool xdevice_is_forked() { return forked; }
EXPORT void xdevice_use(bool value) {
  used = value;
  if (value) return;
  counted = false;
  for (auto& each : has_context) each = false;
}
EXPORT void xdevice_count_gpus() { counted = true; }
EXPORT bool xdevice_is_counted() { return used || counted; }
EXPORT void xdevice_make_context(int index) { make_context(index); }
EXPORT void xdevice_observe_first_use(OnFirstUse function) { on_first_use = function; }
EXPORT int64_t xdevice_new_stream(int index, int priority) { return pooled_stream(index, priority); }
EXPORT int64_t xdevice_handle_of_stream(int index, int64_t stream) { return handle_of(index, stream); }
// From now on, the GPUs' memory is shared with the processes that name the same file.
EXPORT void xdevice_join(const char* path, int64_t bytes) { machine::path = path, bytes_of_context = bytes; }
EXPORT void xdevice_leave() { machine::leave(); }
EXPORT void xdevice_place(int index, int on_machine) { accounting[index].share.gpu = on_machine; }
EXPORT int64_t xdevice_unused(int index) { return memory.getMemoryInfo(index).first; }
EXPORT void xdevice_set_count(int n) { count = n; }
EXPORT int64_t xdevice_next_pending() { return next_pending(); }
EXPORT void xdevice_check(int check, bool enabled) { enabled ? checks |= check : checks &= ~check; }
EXPORT int xdevice_pin(uintptr_t pointer, int64_t bytes) {  // registers the program's own memory; 0 bytes unregister it
  at::globalContext().lazyInitDevice(TYPE);  // until then torch reports no memory as pinned
  return pinned.set_range(pointer, bytes);
}
EXPORT void xdevice_add_alert(const char* operation, const char* caller, const char* argument, const char* value) {
  alerts[operation] = {caller, argument, value};
}
EXPORT void xdevice_add_dtypes(
    const char* name, const char* reduce, const char* message, uint64_t on_cuda, uint64_t on_cpu) {
  Dtypes& row = dtypes[name];
  row.on_cpu |= on_cpu;
  if (on_cuda) row.on_cuda.push_back({reduce, message, on_cuda}), refusing = true;
}
EXPORT int64_t xdevice_allocated(int index) { return allocated(index); }
EXPORT int64_t xdevice_reserved(int index) { return reserved(index); }
EXPORT int64_t xdevice_peak(int index) { return memory.getDeviceStats(index).allocated_bytes[0].peak; }
EXPORT void xdevice_allow(int index, int64_t bytes) { accounting[index].allowed = bytes; }
EXPORT void xdevice_use_allocator(bool value) { uses_allocator = value; }
// The settings of the allocator: the largest block that is split, the threshold, whether segments grow, and the
// divisions of sizes from 1 MiB on, each interval twice as long as the one before.
EXPORT const char* xdevice_allocator_settings() {
  static thread_local std::string text;
  std::ostringstream words;
  words << int64_t(AllocatorConfig::max_split_size()) << ' ' << AllocatorConfig::garbage_collection_threshold() << ' '
        << AllocatorConfig::use_expandable_segments();
  for (size_t divisions : AllocatorConfig::roundup_power2_divisions()) words << ' ' << divisions;
  return (text = words.str()).c_str();
}
EXPORT void xdevice_reset_peak(int index) { memory.resetPeakStats(index); }
EXPORT void xdevice_empty_cache() { memory.emptyCache({0, 0}); }
EXPORT void xdevice_forget_memory() {  // also what was allocated before
  memory.emptyCache({0, 0});
  for (int i = 0; i < count; ++i) memory.resetAccumulatedStats(i), memory.resetPeakStats(i);
}
// From now on, record the peaks. The program may reserve more than the soft limit, after its cache has been released.
EXPORT void xdevice_record_peaks(LineOf function, int64_t soft_limit) {
  for (int i = 0; i < count; ++i) accounting[i].limit = UNLIMITED, accounting[i].soft_limit = soft_limit;
  for (int i = 0; i < count; ++i) on_large_gpu[i].caching = accounting[i].caching, on_large_gpu[i].share.gpu = -1;
  line_of = function;
  rms_norm::use();
}
EXPORT const char* xdevice_stop_computing() { return error_of(stop_computing); }
EXPORT void xdevice_share_peaks(int64_t* totals) {
  for (int i = 0; i < count; ++i) records[i].share(totals + i);
}
EXPORT void xdevice_mark(void* storage, int kind) { mark(static_cast<c10::StorageImpl*>(storage), Kind(kind)); }
// The most that a GPU without a limit would reserve, and the text of the record.
EXPORT const char* xdevice_peak_record(int index) {
  static thread_local std::string text;
  const int64_t most = on_large_gpu[index].get_stats().reserved_bytes[0].peak;
  return (text = std::to_string(most) + ' ' + records[index].text()).c_str();
}
EXPORT void xdevice_has_thread_of_backward(bool value) { has_thread_of_backward = value; }
EXPORT void xdevice_clear_workspaces() { workspaces::clear(); }
// One line for each block: its address, size, size requested, stream, whether it is large, expandable, allocated, and
// whether it begins a segment; the numbers of the stacks that allocated it and its segment; and its pool.
EXPORT const char* xdevice_blocks(int index) {
  static thread_local std::string text;
  std::ostringstream lines;
  accounting[index].for_each_block([&](const Block& b) {
    for (int64_t number : {b.address, b.size, b.requested, handle_of(index, b.stream)}) lines << number << ' ';
    auto [first, second] = b.pool->owner.id;
    lines << b.pool->large << ' ' << b.expandable << ' ' << b.allocated << ' ' << !b.previous << ' ' << b.stack << ' '
          << b.segment_stack << ' ' << first << ' ' << second << '\n';
  });
  return (text = lines.str()).c_str();
}
EXPORT void xdevice_record_history(
    bool on, int64_t most_events, bool clear, int context, int skipped, StackOf stack_of) {
  recording = {on, size_t(most_events), Recording::Context(context), skipped, stack_of};
  if (!on || clear)
    for (DeviceIndex i = 0; i < count; ++i) accounting[i].forget_history();
}
EXPORT void xdevice_observe_out_of_memory(OnOutOfMemory function) { on_out_of_memory = function; }
EXPORT void xdevice_note(int64_t number) { current_note = number; }
// One line for each event: the action, address, size, stream, numbers of the stack and the note, pool, and the time in
// microseconds.
EXPORT const char* xdevice_history(int index, int64_t first, int64_t second) {
  static thread_local std::string text;
  std::ostringstream lines;
  for (const MemoryEvent& e : accounting[index].snapshot(PoolId(first, second))) {
    for (int64_t number : {int64_t(e.action), e.address, e.size, handle_of(index, e.stream), e.stack, e.note})
      lines << number << ' ';
    lines << e.pool.first << ' ' << e.pool.second << ' ' << e.time << '\n';
  }
  return (text = lines.str()).c_str();
}

// Pools of memory that a program has made.
EXPORT void xdevice_use_pool(int index, int64_t first, int64_t second) { accounting[index].use_pool({first, second}); }
EXPORT void xdevice_configure_pool(int index, int64_t first, int64_t second, bool splits, bool overflows) {
  accounting[index].configure_pool({first, second}, splits, overflows);
}
EXPORT void xdevice_release_pool(int index, int64_t first, int64_t second) {
  accounting[index].release_pool({first, second});
}
EXPORT int xdevice_uses_of_pool(int index, int64_t first, int64_t second) {
  return accounting[index].uses_of_pool({first, second});
}
EXPORT void xdevice_empty_pool(int64_t first, int64_t second) { memory.emptyCache(PoolId(first, second)); }
// These return whether something has changed.
EXPORT bool xdevice_begin_pool(int index, int64_t first, int64_t second, bool of_thread) {
  return accounting[index].begin_pool({first, second}, of_thread, streams[index]);
}
EXPORT bool xdevice_end_pool(int index, int64_t first, int64_t second) {
  return accounting[index].end_pool({first, second});
}
}
