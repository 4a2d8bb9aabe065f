// Dropout between recurrent layers. cuDNN draws it from a generator of its own, for which a GPU's
// generator draws a seed when a layer first trains with dropout after that has been seeded. Its
// numbers are not known: those here are Philox's.
#pragma once
#include <ATen/Context.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>

#include "dropout.h"
#include "kernels.h"

namespace xdevice::random {

inline bool is_traced(const Tensor& x) {
  return x.key_set().has(c10::DispatchKey::Python) || c10::impl::TorchDispatchModeTLS::stack_len();
}

// While such an object lives, dropout draws from the generator of the GPU's recurrent layers.
struct RecurrentDropout {
  RecurrentDropout(const Tensor& x, double p, bool train) {
    if (!train || p == 0 || !x.numel()) return;
    if (is_traced(x) || !at::globalContext().userEnabledCuDNN()) return;
    const DeviceIndex index = x.device().index();
    auto& generator = static_cast<PhiloxGenerator&>(virtual_generator(generators[index]));
    if (!generator.recurrent.defined()) {
      const Start begin = start(std::nullopt, x.device(), WORDS);
      const auto words = philox::draw_one(begin.seed, begin.offset / WORDS, 0);
      generator.recurrent = make_generator<PhiloxGenerator>(index);
      const uint64_t seed = uint64_t(words[0]) << 32 | words[1];
      generator.recurrent.set_current_seed(seed & std::numeric_limits<int64_t>::max());
    }
    dropout_generator = generator.recurrent;
  }
  ~RecurrentDropout() { dropout_generator.reset(); }
};

// The same operation, with dropout of cuDNN's kind: `p` and `train` are the arguments after the
// number of layers.
template <class Signature, Signature* layers>
struct Recurrent;

template <class R, class... A, R (*layers)(const Tensor&, A...)>
struct Recurrent<R(const Tensor&, A...), layers> {
  static R call(const Tensor& x, A... arguments) {
    constexpr size_t P = [] {
      size_t i = 0;
      return ((std::is_same_v<A, double> || (++i, false)) || ...), i;
    }();
    auto all = std::forward_as_tuple(arguments...);
    RecurrentDropout dropout(x, std::get<P>(all), std::get<P + 1>(all));
    return layers(x, arguments...);
  }
};

using Layers = std::tuple<Tensor, Tensor>(
    const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool, bool, bool);
using PackedLayers = std::tuple<Tensor, Tensor>(
    const Tensor&, const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool, bool);
using LongShort = std::tuple<Tensor, Tensor, Tensor>(
    const Tensor&, TensorList, TensorList, bool, int64_t, double, bool, bool, bool);
using PackedLongShort = std::tuple<Tensor, Tensor, Tensor>(
    const Tensor&, const Tensor&, TensorList, TensorList, bool, int64_t, double, bool, bool);

inline void replace_recurrent_layers(torch::Library& library) {
  library.impl("lstm.input", &Recurrent<LongShort, &lstm_with_onednn>::call);
  library.impl("lstm.data", &Recurrent<PackedLongShort, &at::native::lstm>::call);
  library.impl("gru.input", &Recurrent<Layers, &at::native::gru>::call);
  library.impl("gru.data", &Recurrent<PackedLayers, &at::native::gru>::call);
  library.impl("rnn_tanh.input", &Recurrent<Layers, &at::native::rnn_tanh>::call);
  library.impl("rnn_tanh.data", &Recurrent<PackedLayers, &at::native::rnn_tanh>::call);
  library.impl("rnn_relu.input", &Recurrent<Layers, &at::native::rnn_relu>::call);
  library.impl("rnn_relu.data", &Recurrent<PackedLayers, &at::native::rnn_relu>::call);
}
}  // namespace xdevice::random
