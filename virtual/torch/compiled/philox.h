// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011), and the functions that make floating-point numbers of its words.
//
// CUDA's kernels use the seed as the key, and the index of the thread and the offset as the counter. The numbers of many
// threads are computed at once, by loops that compilers turn into vector instructions.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)
#include <immintrin.h>
#define XDEVICE_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#define XDEVICE_ON_X86 1
#else
#define XDEVICE_VECTORIZED
#define XDEVICE_ON_X86 0
#endif

namespace xdevice::philox {
constexpr int WIDTH = 64;  // the number of threads that are computed at once
constexpr int ROUNDS = 10;
constexpr uint32_t FACTORS[] = {0xD2511F53, 0xCD9E8D57}, KEY_STEPS[] = {0x9E3779B9, 0xBB67AE85};

// The four words that each of these threads draws at once.
struct Words {
  alignas(64) uint32_t of[4][WIDTH];
};

// The four words of one thread.
inline std::array<uint32_t, 4> draw_one(uint64_t seed, uint64_t counter, uint64_t thread) {
  uint32_t a = uint32_t(counter), b = uint32_t(counter >> 32), c = uint32_t(thread), d = uint32_t(thread >> 32);
  uint32_t key = uint32_t(seed), key_2 = uint32_t(seed >> 32);
  for (int round = 0; round < ROUNDS; ++round) {
    uint64_t p = uint64_t(FACTORS[0]) * a, q = uint64_t(FACTORS[1]) * c;
    a = uint32_t(q >> 32) ^ b ^ key, b = uint32_t(q), c = uint32_t(p >> 32) ^ d ^ key_2, d = uint32_t(p);
    key += KEY_STEPS[0], key_2 += KEY_STEPS[1];
  }
  return {a, b, c, d};
}

inline void draw_portably(uint64_t seed, uint64_t counter, uint64_t thread, Words& words) {
  for (int i = 0; i < WIDTH; ++i) {
    const auto drawn = draw_one(seed, counter, thread + i);
    for (int word = 0; word < 4; ++word) words.of[word][i] = drawn[word];
  }
}

#if XDEVICE_ON_X86
// The same, with a word in each 64-bit lane of a vector: the multiplication ignores the upper half of a lane.
#define XDEVICE_DRAW(NAME, TARGET, VECTOR, LANES, INDICES, EACH, ADD, MULTIPLY, SHIFT, XOR, STORE)                    \
  __attribute__((target(TARGET))) inline void NAME(uint64_t seed, uint64_t counter, uint64_t thread, Words& words) {  \
    for (int i = 0; i < WIDTH; i += LANES) {                                                                          \
      VECTOR a = EACH(counter), b = EACH(counter >> 32), c = ADD(EACH(thread + i), INDICES), d = SHIFT(c, 32);        \
      uint32_t key = uint32_t(seed), key_2 = uint32_t(seed >> 32);                                                    \
      _Pragma("GCC unroll 10") for (int round = 0; round < ROUNDS; ++round) {                                         \
        VECTOR p = MULTIPLY(a, EACH(FACTORS[0])), q = MULTIPLY(c, EACH(FACTORS[1]));                                  \
        a = XOR(XOR(SHIFT(q, 32), b), EACH(key)), b = q;                                                              \
        c = XOR(XOR(SHIFT(p, 32), d), EACH(key_2)), d = p;                                                            \
        key += KEY_STEPS[0], key_2 += KEY_STEPS[1];                                                                   \
      }                                                                                                               \
      STORE(&words.of[0][i], a), STORE(&words.of[1][i], b), STORE(&words.of[2][i], c), STORE(&words.of[3][i], d);     \
    }                                                                                                                 \
  }
#define XDEVICE_STORE_512(to, v) _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(v))
#define XDEVICE_STORE_256(to, v)                       \
  _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(v, \
      _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6))))
XDEVICE_DRAW(draw_by_avx512, "avx512f", __m512i, 8, _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64,
             _mm512_add_epi64, _mm512_mul_epu32, _mm512_srli_epi64, _mm512_xor_si512, XDEVICE_STORE_512)
XDEVICE_DRAW(draw_by_avx2, "avx2", __m256i, 4, _mm256_setr_epi64x(0, 1, 2, 3), _mm256_set1_epi64x,
             _mm256_add_epi64, _mm256_mul_epu32, _mm256_srli_epi64, _mm256_xor_si256, XDEVICE_STORE_256)
#endif

using Draw = void (*)(uint64_t seed, uint64_t counter, uint64_t thread, Words&);

inline Draw fastest() {
#if XDEVICE_ON_X86
  if (__builtin_cpu_supports("avx512f")) return &draw_by_avx512;
  if (__builtin_cpu_supports("avx2")) return &draw_by_avx2;
#endif
  return &draw_portably;
}

// The words of WIDTH threads, from this one on, that the counter numbers.
inline void draw(uint64_t seed, uint64_t counter, uint64_t thread, Words& words) {
  static const Draw function = fastest();
  function(seed, counter, thread, words);
}

// ---- numbers from words: cuRAND's uniform numbers are in (0, 1], and its normal ones are those of Box and Muller ----

// The same as float(word), in instructions that all vector units have.
inline float to_float(uint32_t word) { return float(int(word >> 16)) * 65536.0f + float(int(word & 0xffff)); }

inline float uniform(uint32_t word) { return to_float(word) * 0x1p-32f + 0x1p-33f; }

inline double uniform(uint32_t low, uint32_t high) {
  return double(uint64_t(low) ^ uint64_t(high) << 21) * 0x1p-53 + 0x1p-54;
}

// The logarithm of a positive number, to 1e-7 of it.
inline float logarithm(float x) {
  constexpr int32_t ROOT_OF_HALF = 0x3f3504f3;
  int32_t bits = std::bit_cast<int32_t>(x), exponent = (bits - ROOT_OF_HALF) >> 23;
  float f = std::bit_cast<float>(bits - exponent * (1 << 23)) - 1, square = f * f, p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f, p = p * f + 1.1676998740e-1f, p = p * f - 1.2420140846e-1f, p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f, p = p * f + 2.0000714765e-1f, p = p * f - 2.4999993993e-1f, p = p * f + 3.3333331174e-1f;
  return f + (f * square * p + float(exponent) * -2.12194440e-4f - 0.5f * square) + float(exponent) * 0.693359375f;
}

// The sine of an angle from 0 to 2π, and of one that is so many quarter turns further, to 1e-7.
inline float sine(float angle, int quarters) {
  int quarter = int(angle * 0.63661977f + 0.5f);
  float x = ((angle - float(quarter) * 1.5703125f) - float(quarter) * 4.837512969970703e-4f) - float(quarter) * 7.549789948768648e-8f;
  float square = x * x;
  float s = ((-1.9515295891e-4f * square + 8.3321608736e-3f) * square - 1.6666654611e-1f) * square * x + x;
  float c = ((2.443315711809948e-5f * square - 1.388731625493765e-3f) * square + 4.166664568298827e-2f) * square * square -
      0.5f * square + 1.0f;
  quarter += quarters;
  float value = quarter & 1 ? c : s;
  return quarter & 2 ? -value : value;
}

// The sine of so many turns, from 0 to 1, and of one quarter more.
inline double sine_of_turns(double turns, int quarters) {
  constexpr double TURN = 2 * 3.14159265358979323846;
  int quarter = int(turns * 4 + 0.5);
  double angle = (turns - quarter * 0.25) * TURN;
  quarter += quarters;
  double value = quarter & 1 ? std::cos(angle) : std::sin(angle);
  return quarter & 2 ? -value : value;
}

XDEVICE_VECTORIZED inline void fill_uniform(const uint32_t* words, float* numbers) {
  for (int i = 0; i < WIDTH; ++i) numbers[i] = uniform(words[i]);
}

// Of two words two normal numbers can be made: that of the sine, and, a quarter turn further, that of the cosine.
inline float normal(uint32_t x, uint32_t y, int quarters) {
  constexpr float STEP = 1.46291807e-09f;  // 2π / 2³²
  return std::sqrt(-2.0f * logarithm(uniform(x))) * sine(to_float(y) * STEP + STEP / 2, quarters);
}

inline double normal(const std::array<uint32_t, 4>& words, int quarters) {
  const double u = uniform(words[0], words[1]), turns = uniform(words[2], words[3]);
  return std::sqrt(-2 * std::log(u)) * sine_of_turns(turns, quarters);
}

XDEVICE_VECTORIZED inline void fill_normal(const uint32_t* x, const uint32_t* y, int quarters, float* numbers) {
  for (int i = 0; i < WIDTH; ++i) numbers[i] = normal(x[i], y[i], quarters);
}

// numbers × factor + term, rounded once, as CUDA's fused multiply-add.
XDEVICE_VECTORIZED inline void scale(float* numbers, float factor, float term) {
  for (int i = 0; i < WIDTH; ++i) numbers[i] = float(double(numbers[i]) * factor + term);
}
}  // namespace xdevice::philox
