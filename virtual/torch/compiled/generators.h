// The generators of virtual GPUs. Those that stand in draw as CUDA's, by Philox; others draw the
// CPU's numbers.
#pragma once
#include <ATen/CPUGeneratorImpl.h>

#include "memory.h"

namespace xdevice {

struct VirtualGenerator : GeneratorImpl {
  using GeneratorImpl::GeneratorImpl;
  // For an operation that does not draw as CUDA's: a CPU generator in this one's place.
  virtual Generator begin() = 0;
  // After the operation, which may have drawn from that.
  virtual void end(const Generator& host) = 0;
};

// Where a generator of CUDA's stands: its whole state.
struct Place : c10::intrusive_ptr_target {
  uint64_t seed = default_rng_seed_val, offset = 0;
};

// By splitmix64, so that neighbouring places have nothing in common.
inline uint64_t mixed(uint64_t seed, uint64_t offset) {
  uint64_t z = seed + 0x9e3779b97f4a7c15 * (offset + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

struct PhiloxGenerator final : VirtualGenerator {
  c10::intrusive_ptr<Place> place = c10::make_intrusive<Place>();
  Generator recurrent;  // for dropout between recurrent layers, once it has a seed
  explicit PhiloxGenerator(DeviceIndex i)
      : VirtualGenerator(Device(TYPE, i), DispatchKeySet(KEY)) {}

  // The offset at which a kernel begins that draws at most so many words in each thread.
  uint64_t advance(uint64_t increment) {
    std::lock_guard<std::mutex> lock(mutex_);
    uint64_t before = place->offset;
    place->offset += (increment + 3) / 4 * 4;
    return before;
  }
  Generator begin() override {
    return at::detail::createCPUGenerator(mixed(place->seed, place->offset));
  }
  void end(const Generator& host) override {
    Tensor unused = begin().get_state(), used = host.get_state();
    if (memcmp(unused.const_data_ptr(), used.const_data_ptr(), used.numel())) advance(1);
  }

  void set_current_seed(uint64_t seed) override {
    place->seed = seed, place->offset = 0;
    recurrent = {};
  }
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4");
    place->offset = offset;
  }
  uint64_t get_offset() const override { return place->offset; }
  uint64_t current_seed() const override { return place->seed; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom(true));
    return place->seed;
  }
  void set_state(const c10::TensorImpl& state) override {  // a seed, and perhaps an offset
    at::detail::check_rng_state(state);
    uint64_t values[2] = {};
    const size_t size = state.numel();
    TORCH_CHECK(size == sizeof values || size == sizeof values[0], "RNG state is wrong size");
    memcpy(values, state.data(), size);
    set_current_seed(values[0]);
    set_offset(values[1]);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const uint64_t values[2] = {place->seed, place->offset};
    Tensor state = at::detail::empty_cpu({int64_t(sizeof values)}, kByte);
    memcpy(state.mutable_data_ptr(), values, sizeof values);
    return state.getIntrusivePtr();
  }
  PhiloxGenerator* clone_impl() const override {
    auto* copy = new PhiloxGenerator(device().index());
    copy->place->seed = place->seed, copy->place->offset = place->offset;
    return copy;
  }
  // By these compiled code draws the same numbers in backward: not copied, so that what is drawn
  // advances the state.
  c10::intrusive_ptr<GeneratorImpl> graphsafe_get_state() const override {
    auto same = c10::make_intrusive<PhiloxGenerator>(device().index());
    same->place = place;
    return same;
  }
  void graphsafe_set_state(const c10::intrusive_ptr<GeneratorImpl>& other) override {
    place = static_cast<const PhiloxGenerator&>(*other).place;
  }
};

// A virtual GPU's random numbers are those of a CPU generator. As CUDA's it also has an offset, for
// DTensor, which sets a seed and an offset (16 bytes) in place of a whole state: these two then
// decide what follows.
struct HostGenerator final : VirtualGenerator {
  Generator host;
  std::array<uint64_t, 2> place{};  // the seed and the offset
  HostGenerator(DeviceIndex i, Generator h)
      : VirtualGenerator(Device(TYPE, i), DispatchKeySet(KEY)), host(std::move(h)) {
    place[0] = host.current_seed();
  }
  Generator begin() override { return host; }
  void end(const Generator& other) override {
    if (other != host) host.set_state(other.get_state());
  }
  void set_current_seed(uint64_t s) override {
    host.set_current_seed(s);
    place = {s, 0};
  }
  void set_offset(uint64_t n) override {
    place[1] = n;
    begin_at_place();
  }
  uint64_t get_offset() const override { return place[1]; }
  uint64_t current_seed() const override { return place[0]; }
  uint64_t seed() override {
    place[1] = 0;
    return place[0] = host.seed();
  }
  void begin_at_place() { host.set_current_seed(mixed(place[0], place[1])); }
  // The state is a whole one, or as CUDA's: a seed, and perhaps an offset.
  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    const size_t size = state.numel(), seed = sizeof place[0];
    Tensor of_host = host.get_state();
    const size_t own = size == of_host.numel() + sizeof place ? of_host.numel() : 0;
    TORCH_CHECK(own || size == seed || size == sizeof place, "RNG state is wrong size");
    auto* bytes = static_cast<const uint8_t*>(state.data());
    if (own) {
      memcpy(of_host.mutable_data_ptr(), bytes, own);
      host.set_state(of_host);
    }
    place = {};
    memcpy(place.data(), bytes + own, size - own);
    if (!own) begin_at_place();
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    Tensor of_host = host.get_state();
    int64_t own = of_host.numel();
    Tensor made = at::detail::empty_cpu({own + int64_t(sizeof place)}, kByte);
    auto* bytes = static_cast<uint8_t*>(made.mutable_data_ptr());
    memcpy(bytes, of_host.const_data_ptr(), own);
    memcpy(bytes + own, place.data(), sizeof place);
    return made.getIntrusivePtr();
  }
  HostGenerator* with(Generator h) const {
    auto* made = new HostGenerator(device().index(), std::move(h));
    made->place = place;
    return made;
  }
  HostGenerator* clone_impl() const override { return with(host.clone()); }
  // By these compiled code draws the same numbers in backward: not copied, so that what is drawn
  // advances the state.
  c10::intrusive_ptr<GeneratorImpl> graphsafe_get_state() const override {
    return c10::intrusive_ptr<GeneratorImpl>::reclaim(with(host));
  }
  void graphsafe_set_state(const c10::intrusive_ptr<GeneratorImpl>& state) override {
    auto& other = static_cast<const HostGenerator&>(*state);
    host = other.host, place = other.place;
  }
};

inline Generator new_generator(DeviceIndex i) {
  if (TYPE == c10::DeviceType::CUDA) return make_generator<PhiloxGenerator>(i);
  return make_generator<HostGenerator>(i, at::detail::createCPUGenerator());
}

// The default ones.
inline std::array<Generator, MOST>& generators = *new std::array<Generator, MOST>;

inline VirtualGenerator& virtual_generator(const Generator& generator) {
  return *static_cast<VirtualGenerator*>(generator.unsafeGetGeneratorImpl());
}

// The generator that an operation on the device draws from; CUDA's error for one of the CPU. As on
// CUDA, that of another GPU serves.
inline Generator generator_for(const std::optional<Generator>& requested, Device device) {
  Generator generator = requested && requested->defined() ? *requested : generators[device.index()];
  Device of = generator.device();
  TORCH_CHECK(of.type() == TYPE || TYPE != c10::DeviceType::CUDA,
      "Expected a 'cuda' device type for generator but found '", of.type(), "'");
  const bool serves = of == device || (TYPE == c10::DeviceType::CUDA && device.type() == TYPE);
  TORCH_CHECK(serves, "Expected a '", device, "' generator device but found '", of, "'");
  return generator;
}
}  // namespace xdevice
