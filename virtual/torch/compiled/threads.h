// The threads that a program would have on CUDA. There, backward runs in a thread of its own for each device; here it
// runs in the thread that calls it.
#pragma once
#include <torch/csrc/autograd/function.h>

#include <thread>

namespace xdevice {
// In a backward, unless the program has disabled autograd's threads.
inline thread_local bool has_thread_of_backward = false;

inline bool is_in_thread_of_backward() {
  return has_thread_of_backward && torch::autograd::get_current_node() != nullptr;
}

struct Thread {
  std::thread::id id;
  bool in_backward;
  bool operator==(const Thread&) const = default;
};

inline Thread current_thread() { return {std::this_thread::get_id(), is_in_thread_of_backward()}; }
}  // namespace xdevice
