// The grids of CUDA's kernels that draw random numbers: which thread draws the numbers of which
// element. No C++ library is used.
#pragma once
#include "philox.h"

namespace xdevice::philox {
constexpr int64_t BLOCK = 256;  // threads

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t divided_up(int64_t number, int64_t divisor) { return (number - 1) / divisor + 1; }

// What decides on a grid: the model of the GPU.
struct Multiprocessors {
  int64_t number;
  int64_t threads_of_each;

  // The threads in the grid for n elements: one for each, as far as the multiprocessors hold them.
  int64_t threads_for(int64_t n) const {
    return BLOCK * least(divided_up(n, BLOCK), number * (threads_of_each / BLOCK));
  }
};

// What a generator gives one kernel: each thread begins at the offset in its own words.
struct Start {
  uint64_t seed;
  uint64_t offset;
  void draw(uint64_t turn, uint64_t thread, Words& words) const {
    const uint64_t block = offset / WORDS + turn;
    const int skipped = offset % WORDS;
    philox::draw(seed, block, thread, words);
    if (!skipped) return;
    Words next;
    philox::draw(seed, block + 1, thread, next);
    for (int i = 0; i < WORDS; ++i) {
      const int word = i + skipped;
      memcpy(words.of[i], word < WORDS ? words.of[word] : next.of[word - WORDS],
             sizeof words.of[i]);
    }
  }
};

// The words of one thread, one after another.
struct Sequence {
  Start begin;
  uint64_t thread;
  uint64_t drawn = 0;
  Quad quad{};

  uint32_t word() {
    const uint64_t position = begin.offset + drawn;
    const int next = position % WORDS;
    if (drawn == 0 || next == 0) quad = draw_one(begin.seed, position / WORDS, thread);
    ++drawn;
    return quad[next];
  }
  float uniform() { return philox::uniform(word()); }
};

// ---- what a thread makes of the words that it draws at once: `NUMBERS` numbers, for elements that
// are a grid apart. `numbers` computes the i-th ones of consecutive threads, at least `count`

struct Uniform {
  using Number = float;
  static constexpr int NUMBERS = 4;
  float factor = 1;
  float term = 0;
  void numbers(const Words& words, int i, int64_t, float* out) const {
    fill_uniform(words.of[i], out);
    if (factor != 1 || term != 0) scale(out, factor, term);
  }
};

struct UniformDouble {
  using Number = double;
  static constexpr int NUMBERS = 2;
  double factor = 1;
  double term = 0;
  void numbers(const Words& words, int i, int64_t count, double* out) const {
    const uint32_t* first = words.of[2 * i];
    const uint32_t* second = words.of[2 * i + 1];
    for (int64_t k = 0; k < count; ++k) out[k] = uniform(first[k], second[k]) * factor + term;
  }
};

struct Normal {
  using Number = float;
  static constexpr int NUMBERS = 4;
  float factor = 1;
  float term = 0;
  void numbers(const Words& words, int i, int64_t, float* out) const {
    const int pair = i & ~1;
    fill_normal(words.of[pair], words.of[pair + 1], i & 1, out);
    if (factor != 1 || term != 0) scale(out, factor, term);
  }
};

struct NormalDouble {
  using Number = double;
  static constexpr int NUMBERS = 2;
  double factor = 1;
  double term = 0;
  void numbers(const Words& words, int i, int64_t count, double* out) const {
    for (int64_t k = 0; k < count; ++k) {
      const Quad quad{{words.of[0][k], words.of[1][k], words.of[2][k], words.of[3][k]}};
      out[k] = normal(quad, i) * factor + term;
    }
  }
};

struct Integers {
  using Number = uint32_t;
  static constexpr int NUMBERS = 4;
  void numbers(const Words& words, int i, int64_t, uint32_t* out) const {
    memcpy(out, words.of[i], sizeof words.of[i]);
  }
};

struct LongIntegers {
  using Number = uint64_t;
  static constexpr int NUMBERS = 2;
  void numbers(const Words& words, int i, int64_t count, uint64_t* out) const {
    const uint32_t* upper = words.of[2 * i];
    const uint32_t* lower = words.of[2 * i + 1];
    for (int64_t k = 0; k < count; ++k) out[k] = uint64_t(upper[k]) << 32 | lower[k];
  }
};

// Calls `store(element, numbers, count)` for each run of elements that consecutive threads draw.
template <class Source, class F>
void draw(int64_t n, int64_t threads, const Start& start, const Source& source, F store) {
  Words words;
  alignas(64) typename Source::Number numbers[WIDTH];
  const int64_t elements_of_a_turn = threads * Source::NUMBERS;
  for (int64_t first = 0, turn = 0; first < n; first += elements_of_a_turn, ++turn)
    for (int64_t thread = 0; thread < threads && first + thread < n; thread += WIDTH) {
      start.draw(turn, thread, words);
      for (int i = 0; i < Source::NUMBERS; ++i) {
        const int64_t element = first + i * threads + thread;
        if (element >= n) break;
        const int64_t count = least(WIDTH, n - element);
        source.numbers(words, i, count, numbers);
        store(element, numbers, count);
      }
    }
}

// The same where a thread draws for so many neighbours, one to eight: it has a number of 32 bits
// for each. Calls `store(element, number)`.
template <class F>
void draw_for_neighbours(int64_t n, int64_t threads, int64_t neighbours, const Start& start,
                         F store) {
  const int64_t draws = divided_up(neighbours, WORDS);  // of a thread at a turn
  const int64_t each = least(neighbours, WORDS);
  Words words;
  alignas(64) float numbers[WORDS][WIDTH];
  for (int64_t first = 0, turn = 0; first < n; first += threads * neighbours, ++turn)
    for (int64_t thread = 0; thread < threads; thread += WIDTH) {
      const int64_t begin = first + thread * neighbours;
      if (begin >= n) break;
      for (int64_t part = 0; part < draws; ++part) {
        start.draw(turn * draws + part, thread, words);
        for (int64_t i = 0; i < each; ++i) fill_uniform(words.of[i], numbers[i]);
        for (int64_t k = 0; k < WIDTH; ++k) {
          const int64_t element = begin + k * neighbours + part * WORDS;
          for (int64_t i = 0; i < each && element + i < n; ++i) store(element + i, numbers[i][k]);
        }
      }
    }
}
}  // namespace xdevice::philox
