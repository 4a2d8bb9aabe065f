// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011), and the functions that make floating-point
// numbers of its words.
//
// cuRAND uses the seed as the key, and the index of the thread and the offset as the counter. The
// numbers of many threads are computed at once, by loops that compilers turn into vector
// instructions. No C++ library is used: a plug-in may have none.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(XDEVICE_BARE)
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
constexpr int WORDS = 4;  // that a thread draws at once
constexpr uint32_t FACTORS[] = {0xD2511F53, 0xCD9E8D57};
constexpr uint32_t KEY_STEPS[] = {0x9E3779B9, 0xBB67AE85};

// The words that each of these threads draws at once.
struct Words {
  alignas(64) uint32_t of[WORDS][WIDTH];
};

// The words of one thread.
struct Quad {
  uint32_t words[WORDS];
  uint32_t operator[](int i) const { return words[i]; }
};

inline uint32_t low(uint64_t number) { return uint32_t(number); }
inline uint32_t high(uint64_t number) { return uint32_t(number >> 32); }

inline Quad draw_one(uint64_t seed, uint64_t counter, uint64_t thread) {
  uint32_t a = low(counter), b = high(counter);
  uint32_t c = low(thread), d = high(thread);
  uint32_t key = low(seed), key_2 = high(seed);
  for (int round = 0; round < ROUNDS; ++round) {
    const uint64_t p = uint64_t(FACTORS[0]) * a;
    const uint64_t q = uint64_t(FACTORS[1]) * c;
    a = high(q) ^ b ^ key;
    b = low(q);
    c = high(p) ^ d ^ key_2;
    d = low(p);
    key += KEY_STEPS[0];
    key_2 += KEY_STEPS[1];
  }
  return {{a, b, c, d}};
}

inline void draw_portably(uint64_t seed, uint64_t counter, uint64_t thread, Words& words) {
  for (int i = 0; i < WIDTH; ++i) {
    const Quad drawn = draw_one(seed, counter, thread + i);
    for (int word = 0; word < WORDS; ++word) words.of[word][i] = drawn[word];
  }
}

#if XDEVICE_ON_X86
// The same, with a word in each 64-bit lane of a vector: the multiplication ignores the upper half
// of a lane. The macro is given the instructions of one processor.
#define XDEVICE_DRAW(NAME, TARGET, VECTOR, LANES, INDICES, ALL, ADD, MULTIPLY, SHIFT, XOR, STORE) \
  __attribute__((target(TARGET))) inline void NAME(                                               \
      uint64_t seed, uint64_t counter, uint64_t thread, Words& words) {                           \
    for (int i = 0; i < WIDTH; i += LANES) {                                                      \
      VECTOR a = ALL(counter);                                                                    \
      VECTOR b = ALL(counter >> 32);                                                              \
      VECTOR c = ADD(ALL(thread + i), INDICES);                                                   \
      VECTOR d = SHIFT(c, 32);                                                                    \
      uint32_t key = low(seed);                                                                   \
      uint32_t key_2 = high(seed);                                                                \
      _Pragma("GCC unroll 10") for (int round = 0; round < ROUNDS; ++round) {                     \
        const VECTOR p = MULTIPLY(a, ALL(FACTORS[0]));                                            \
        const VECTOR q = MULTIPLY(c, ALL(FACTORS[1]));                                            \
        a = XOR(XOR(SHIFT(q, 32), b), ALL(key));                                                  \
        b = q;                                                                                    \
        c = XOR(XOR(SHIFT(p, 32), d), ALL(key_2));                                                \
        d = p;                                                                                    \
        key += KEY_STEPS[0];                                                                      \
        key_2 += KEY_STEPS[1];                                                                    \
      }                                                                                           \
      STORE(&words.of[0][i], a);                                                                  \
      STORE(&words.of[1][i], b);                                                                  \
      STORE(&words.of[2][i], c);                                                                  \
      STORE(&words.of[3][i], d);                                                                  \
    }                                                                                             \
  }

__attribute__((target("avx512f"))) inline void store_lower_halves(uint32_t* to, __m512i lanes) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(lanes));
}

__attribute__((target("avx2"))) inline void store_lower_halves(uint32_t* to, __m256i lanes) {
  const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  const __m256i halves = _mm256_permutevar8x32_epi32(lanes, even);
  _mm_store_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(halves));
}

XDEVICE_DRAW(draw_by_avx512, "avx512f", __m512i, 8, _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7),
             _mm512_set1_epi64, _mm512_add_epi64, _mm512_mul_epu32, _mm512_srli_epi64,
             _mm512_xor_si512, store_lower_halves)
XDEVICE_DRAW(draw_by_avx2, "avx2", __m256i, 4, _mm256_setr_epi64x(0, 1, 2, 3), _mm256_set1_epi64x,
             _mm256_add_epi64, _mm256_mul_epu32, _mm256_srli_epi64, _mm256_xor_si256,
             store_lower_halves)
#undef XDEVICE_DRAW
#endif

// The words of WIDTH threads, from this one on, that the counter numbers.
inline void draw(uint64_t seed, uint64_t counter, uint64_t thread, Words& words) {
#if XDEVICE_ON_X86
  static const auto fastest = __builtin_cpu_supports("avx512f") ? &draw_by_avx512
                              : __builtin_cpu_supports("avx2")  ? &draw_by_avx2
                                                                : &draw_portably;
  fastest(seed, counter, thread, words);
#else
  draw_portably(seed, counter, thread, words);
#endif
}

// ---- numbers of words: cuRAND's uniform numbers are in (0, 1], its normal ones by Box and Muller

// The same as float(word), in instructions that all vector units have.
inline float to_float(uint32_t word) {
  return float(int(word >> 16)) * 65536.0f + float(int(word & 0xffff));
}

inline float uniform(uint32_t word) { return to_float(word) * 0x1p-32f + 0x1p-33f; }

inline double uniform(uint32_t first, uint32_t second) {
  return double(uint64_t(first) ^ uint64_t(second) << 21) * 0x1p-53 + 0x1p-54;
}

inline int32_t bits_of(float number) {
  int32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

inline float float_of(int32_t bits) {
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

// The logarithm of a positive number, to 1e-7 of it: a polynomial of f, where 1 + f is between the
// root of 1/2 and that of 2, and the exponent times log(2), which is added in two parts.
inline float logarithm(float x) {
  constexpr int32_t ROOT_OF_HALF = 0x3f3504f3;
  constexpr int MANTISSA_BITS = 23;
  const int32_t bits = bits_of(x);
  const int32_t exponent = (bits - ROOT_OF_HALF) >> MANTISSA_BITS;
  const float f = float_of(bits - exponent * (1 << MANTISSA_BITS)) - 1;
  const float square = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const float small_part = float(exponent) * -2.12194440e-4f;
  const float large_part = float(exponent) * 0.693359375f;
  return f + (f * square * p + small_part - 0.5f * square) + large_part;
}

// The value of a sine or cosine of an angle within an eighth turn of so many quarter turns.
template <class Number>
Number of_quarter(int quarter, Number sine, Number cosine) {
  const Number value = quarter & 1 ? cosine : sine;
  return quarter & 2 ? -value : value;
}

// The sine of an angle from 0 to 2π, and of one that is so many quarter turns further, to 1e-7.
inline float sine(float angle, int quarters) {
  const int quarter = int(angle * 0.63661977f + 0.5f);
  float x = angle - float(quarter) * 1.5703125f;  // half of π, in three parts
  x = x - float(quarter) * 4.837512969970703e-4f;
  x = x - float(quarter) * 7.549789948768648e-8f;
  const float square = x * x;
  float s = -1.9515295891e-4f;
  s = s * square + 8.3321608736e-3f;
  s = s * square - 1.6666654611e-1f;
  s = s * square * x + x;
  float c = 2.443315711809948e-5f;
  c = c * square - 1.388731625493765e-3f;
  c = c * square + 4.166664568298827e-2f;
  c = c * square * square - 0.5f * square + 1.0f;
  return of_quarter(quarter + quarters, s, c);
}

// The sine of so many turns, from 0 to 1, and of so many quarter turns more.
inline double sine_of_turns(double turns, int quarters) {
  constexpr double TURN = 2 * 3.14159265358979323846;
  const int quarter = int(turns * 4 + 0.5);
  const double angle = (turns - quarter * 0.25) * TURN;
  return of_quarter(quarter + quarters, sin(angle), cos(angle));
}

// Of two words two normal numbers can be made: that of the sine, and, a quarter turn further, that
// of the cosine.
inline float normal(uint32_t x, uint32_t y, int quarters) {
  constexpr float STEP = 1.46291807e-09f;  // 2π / 2³²
  const float radius = sqrtf(-2.0f * logarithm(uniform(x)));
  return radius * sine(to_float(y) * STEP + STEP / 2, quarters);
}

inline double normal(const Quad& words, int quarters) {
  const double radius = sqrt(-2 * log(uniform(words[0], words[1])));
  return radius * sine_of_turns(uniform(words[2], words[3]), quarters);
}

XDEVICE_VECTORIZED inline void fill_uniform(const uint32_t* words, float* numbers) {
  for (int i = 0; i < WIDTH; ++i) numbers[i] = uniform(words[i]);
}

XDEVICE_VECTORIZED inline void fill_normal(
    const uint32_t* x, const uint32_t* y, int quarters, float* numbers) {
  for (int i = 0; i < WIDTH; ++i) numbers[i] = normal(x[i], y[i], quarters);
}

// numbers × factor + term, rounded once, as CUDA's fused multiply-add.
XDEVICE_VECTORIZED inline void scale(float* numbers, float factor, float term) {
  for (int i = 0; i < WIDTH; ++i) numbers[i] = float(double(numbers[i]) * factor + term);
}
}  // namespace xdevice::philox
