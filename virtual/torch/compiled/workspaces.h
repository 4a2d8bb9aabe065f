// The workspaces of cuBLAS, which PyTorch allocates at a thread's first matrix product on a stream, and keeps.
//
// Their sizes are documented: CUBLAS_WORKSPACE_CONFIG (two blocks of 4 MiB and eight of 16 KiB, on Hopper 32 MiB), and
// CUBLASLT_WORKSPACE_SIZE in KiB (1 MiB) for products with a bias of one dimension, which cuBLASLt adds.
#pragma once
#include <c10/util/env.h>

#include <regex>

#include "plan.h"

namespace xdevice::workspaces {
inline int capability = 80;  // of the model of GPU, as 10 * major + minor

enum Library { NONE, CUBLAS, CUBLASLT };

inline int64_t size_of_cublas() {
  constexpr int64_t KIB = 1 << 10;
  int64_t usual = capability == 90 ? 32 * MIB : 2 * 4096 * KIB + 8 * 16 * KIB, total = 0;
  const auto setting = c10::utils::get_env("CUBLAS_WORKSPACE_CONFIG");
  if (!setting) return usual;
  static const std::regex part(":([0-9]+):([0-9]+)");
  std::sregex_iterator at(setting->begin(), setting->end(), part), end;
  if (at == end) return usual;
  for (; at != end; ++at) total += std::stoll((*at)[1]) * KIB * std::stoll((*at)[2]);
  return total;
}

inline int64_t size_of_cublaslt() {
  const auto setting = c10::utils::get_env("CUBLASLT_WORKSPACE_SIZE");
  char* end = nullptr;
  int64_t kib = setting ? std::strtoll(setting->c_str(), &end, 10) : 1024;
  return (setting && end == setting->c_str() ? 1024 : kib) << 10;
}

// The handles of cuBLAS: each thread has one for each device, and leaves it to a later thread when it ends.
struct Handles {
  static inline std::mutex& lock = *new std::mutex;
  static inline auto& unused = *new std::map<DeviceIndex, std::vector<int>>;
  static inline int last = 0;
  std::map<std::pair<DeviceIndex, bool>, int> mine;

  int of(DeviceIndex index) {
    std::pair key{index, is_in_thread_of_backward()};
    if (auto found = mine.find(key); found != mine.end()) return found->second;
    std::lock_guard<std::mutex> one(lock);
    auto& free = unused[index];
    if (free.empty()) return mine[key] = ++last;
    mine[key] = free.back();
    free.pop_back();
    return mine[key];
  }
  ~Handles() {
    std::lock_guard<std::mutex> one(lock);
    for (auto [key, handle] : mine) unused[key.first].push_back(handle);
  }
};
inline thread_local Handles handles;

using Key = std::tuple<DeviceIndex, int, c10::StreamId, Library>;
inline std::mutex& lock = *new std::mutex;
inline auto& blocks = *new std::map<Key, Block*>;

inline void keep(DeviceIndex index, Library library) {
  std::lock_guard<std::mutex> one(lock);
  Key key{index, handles.of(index), streams[index], library};
  if (blocks.count(key)) return;
  Block* block = allocate_block(index, library == CUBLAS ? size_of_cublas() : size_of_cublaslt());
  if (block) records[index].mark(block->number, WORKSPACE);
  blocks[key] = block;
}

// To be called after a matrix product: the workspaces come after its result.
inline void allocate(DeviceIndex index, Library library) {
  if (library == NONE) return;
  keep(index, CUBLAS);
  static const bool unified = c10::utils::check_env("TORCH_CUBLASLT_UNIFIED_WORKSPACE") == true;
  if (library == CUBLASLT && !unified) keep(index, CUBLASLT);
}

inline void clear() {
  std::lock_guard<std::mutex> one(lock);
  for (auto [key, block] : blocks) free_block(std::get<DeviceIndex>(key), block);
  blocks.clear();
}

// Whether cuBLASLt computes the product: the bias has one dimension, and no matrix has a single row or column.
inline bool is_with_bias(const IValue* arguments) {
  const Tensor &bias = arguments[0].toTensor(), &a = arguments[1].toTensor(), &b = arguments[2].toTensor();
  auto type = bias.scalar_type();
  bool has_type = type == kDouble || type == kFloat || type == kHalf || type == kBFloat16;
  auto is_matrix = [](const Tensor& t) { return t.dim() == 2 && t.size(0) > 1 && t.size(1) > 1; };
  return has_type && bias.dim() == 1 && bias.is_contiguous() && is_matrix(a) && is_matrix(b) &&
      bias.size(0) == b.size(1) && arguments[3].toScalar().toComplexDouble() == 1.0;
}

// The library that computes an operation, before its arguments are replaced.
inline Library library_of(const Plan& plan, const IValue* arguments) {
  if (C10_LIKELY(plan.product == Plan::NO_PRODUCT) || TYPE != c10::DeviceType::CUDA) return NONE;
  for (int i = 0; i < plan.arguments; ++i)
    if (auto* t = tensor_in(arguments[i]); t && t->numel() == 0) return NONE;
  return plan.product == Plan::ADDED && is_with_bias(arguments) ? CUBLASLT : CUBLAS;
}
}  // namespace xdevice::workspaces
