// The threads that a program would have on CUDA. There, backward runs in a thread of its own for each device; here it
// runs in the thread that calls it.
#pragma once
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/function.h>

#include <thread>

namespace xdevice {
inline bool is_in_thread_of_backward() {
  return torch::autograd::get_current_node() != nullptr &&
      c10::AutogradState::get_tls_state().get_multithreading_enabled();
}

struct Thread {
  std::thread::id id;
  bool in_backward;
  bool operator==(const Thread&) const = default;
};

inline Thread current_thread() { return {std::this_thread::get_id(), is_in_thread_of_backward()}; }
}  // namespace xdevice
