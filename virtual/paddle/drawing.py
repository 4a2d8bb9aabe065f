"""What the kernels of PaddlePaddle draw on GPUs, by cuRAND's Philox4x32-10.

The generator's seed is the key. Each thread has a sequence of words of its own, and the generator's
offset is the position in it. How many threads there are depends on the GPU's model.
"""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import paddle

from xdevice.contract import Tensor
from xdevice.virtual import philox, request
from xdevice.virtual.models import MODELS, USUAL, Model
from xdevice.virtual.paddle.generators import Generator, generator
from xdevice.virtual.philox import Words

Numbers: TypeAlias = Any  # an array of any dtype
Convert: TypeAlias = Callable[[Words], Numbers]
"""Makes numbers of the four words of each thread: a row for the first numbers, and so on."""

_BLOCK = 256  # threads
_AT_ONCE = 1 << 15  # threads whose numbers are computed together
_STEP, _LONG_STEP = np.float32(2.0**-32), 2.0**-53
_LARGEST_WORD = 0xFFFFFFFF
_SIGN = np.uint32(1 << 31)


class Memory:
    """The memory of a GPU's tensor, which is the host's."""

    def __init__(self, tensor: Tensor) -> None:
        self.size = int(tensor.size)
        self.generator: Generator = generator(tensor.place.gpu_device_id())
        self._is_bfloat16 = tensor.dtype == paddle.bfloat16
        dtype = np.dtype("uint16" if self._is_bfloat16 else tensor.dtype.name.lower())
        kind = ctypes.c_char * (self.size * dtype.itemsize)
        memory: Any = kind.from_address(tensor.data_ptr())
        self._values: Numbers = np.frombuffer(memory, dtype)
        self.is_double = dtype == np.float64

    def read(self) -> Numbers:
        if self._is_bfloat16:
            return (self._values.astype(np.uint32) << 16).view(np.float32)
        return self._values.astype(np.float64 if self.is_double else np.float32)

    def store(self, first: int, numbers: Numbers) -> None:
        if self._is_bfloat16:
            bits = numbers.astype(np.float32).view(np.uint32)
            numbers = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # rounded to even
        self._values[first : first + len(numbers)] = numbers


class Scratch(Memory):
    """An array in the place of a tensor of so many elements."""

    def __init__(self, like: Memory, dtype: Any) -> None:
        self.size, self.generator = like.size, like.generator
        self._is_bfloat16, self._values = False, np.empty(like.size, dtype)
        self.is_double = self._values.dtype == np.float64

    @property
    def values(self) -> Numbers:
        return self._values


def model() -> Model:
    return MODELS.get(request.current().model, USUAL)


def words_at(seed: int, position: int, threads: Numbers) -> Words:
    """The next four words of each thread, from this position in its sequence."""
    indices = threads.astype(np.uint64)
    block, skipped = divmod(position, philox.WORDS)
    counters = np.full_like(indices, block)
    words = philox.words(seed, counters, indices)
    if not skipped:
        return words
    following = philox.words(seed, counters + np.uint64(1), indices)
    both = np.concatenate([words, following], axis=-1)
    return both[:, skipped : skipped + philox.WORDS]


# ----------------------------------- a thread's numbers are for elements that are a grid apart


def _fill(memory: Memory, count: int, convert: Convert) -> None:
    """Fill the memory: a thread makes so many numbers of four words."""
    gpu, size = model(), memory.size
    threads = _BLOCK * min(-(-size // _BLOCK), gpu.threads // _BLOCK * gpu.multiprocessors)
    increment = philox.WORDS * -(-size // (philox.WORDS * threads))
    seed, offset = memory.generator.advance(increment)
    for turn in range(-(-size // (count * threads))):
        begin = turn * count * threads
        for thread in range(0, min(threads, size - begin), _AT_ONCE):
            indices = np.arange(thread, min(thread + _AT_ONCE, threads))
            rows = convert(words_at(seed, offset + turn * philox.WORDS, indices))
            for i, numbers in enumerate(rows):
                first = begin + i * threads + thread
                if first < size:
                    memory.store(first, numbers[: size - first])


def _uniform(words: Words) -> Numbers:
    """Numbers from 0 to 1, without 0."""
    return (words.astype(np.float32) * _STEP + _STEP / 2).T


def _long_uniform(words: Words) -> Numbers:
    bits = words[:, ::2] ^ words[:, 1::2] << np.uint64(21)
    return (bits.astype(np.float64) * _LONG_STEP + _LONG_STEP / 2).T


def _fill_by(memory: Memory, transform: Callable[[Numbers], Numbers]) -> None:
    """Fill the memory with uniform numbers, transformed."""
    if memory.is_double:
        _fill(memory, 2, lambda words: transform(_long_uniform(words)))
    else:
        _fill(memory, 4, lambda words: transform(_uniform(words)))


def fill_uniform(memory: Memory, low: float, high: float) -> None:
    def scaled(uniform: Numbers) -> Numbers:
        kind = uniform.dtype.type
        return np.where(uniform == 1, kind(low), uniform * (kind(high) - kind(low)) + kind(low))

    _fill_by(memory, scaled)


def fill_normal(memory: Memory, mean: float, std: float) -> None:
    def normal(uniform: Numbers) -> Numbers:
        kind = uniform.dtype.type
        return _box_muller(uniform) * kind(std) + kind(mean)

    _fill_by(memory, normal)


def _box_muller(uniform: Numbers) -> Numbers:
    """Two normal numbers of each two uniform ones."""
    radius = np.sqrt(-2 * np.log(uniform[::2]))
    angle = uniform.dtype.type(2 * np.pi) * uniform[1::2]
    return np.stack([radius * np.sin(angle), radius * np.cos(angle)], 1).reshape(uniform.shape)


def fill_exponential(memory: Memory, rate: float) -> None:
    def exponential(uniform: Numbers) -> Numbers:
        kind = uniform.dtype.type
        half_step = np.finfo(kind).eps / 2
        logarithm = np.log(uniform.astype(np.float32)).astype(kind)  # in float32, as on GPUs
        return kind(-1 / rate) * np.where(uniform < 1 - half_step, logarithm, kind(-half_step))

    _fill_by(memory, exponential)


def fill_integers(memory: Memory, low: int, high: int) -> None:
    _fill(memory, 4, lambda words: (words.T % np.uint64(high - low)).astype(np.int64) + low)


# ------------------------------------------------- a thread's numbers are for four neighbours


def launch(size: int) -> tuple[int, int]:
    """The blocks and the threads of each with which PaddlePaddle starts such a kernel."""
    most, multiprocessors = 512, model().multiprocessors
    threads = most
    for factor in (2, 4):
        share = size // philox.WORDS // (multiprocessors * factor)
        if share < most:
            threads = max(64, 1 << max(0, share - 1).bit_length())
            break
    return -(-size // (philox.WORDS * threads)), threads


def uniform_of_neighbours(memory: Memory, threads: int, increment: int) -> Numbers:
    """A uniform number for each element."""
    seed, offset = memory.generator.advance(increment)
    quads = -(-memory.size // philox.WORDS)
    numbers = np.empty((quads, philox.WORDS), np.float32)
    for turn, begin in enumerate(range(0, quads, threads)):
        end = min(begin + threads, quads)
        for first in range(begin, end, _AT_ONCE):
            last = min(first + _AT_ONCE, end)
            position = offset + turn * philox.WORDS
            words = words_at(seed, position, np.arange(first - begin, last - begin))
            numbers[first:last] = _uniform(words).T
    return numbers.reshape(-1)[: memory.size]


def fill_trials(memory: Memory, probabilities: Memory) -> None:
    blocks, threads = launch(memory.size)
    numbers = uniform_of_neighbours(memory, blocks * threads, 12)
    memory.store(0, numbers <= probabilities.read())


# ------------------------------------------------------------------- one thread for each element

_LEAST_OF_MEDIUM, _GREATEST_OF_MEDIUM = 64, 4000


def fill_poisson(memory: Memory, rates: Memory) -> bool:
    """Fill with numbers of Poisson's distribution, but not where rates are from 64 to 4000.

    Returns whether there are such rates.
    """
    seed, offset = memory.generator.advance(20)
    rate = rates.read()
    small = np.flatnonzero(rate < _LEAST_OF_MEDIUM)
    numbers = memory.read()
    numbers[small] = _poisson(seed, offset, small, rate[small].astype(np.float32))
    large = np.flatnonzero(rate > _GREATEST_OF_MEDIUM)
    if len(large):
        normal = _box_muller(_long_uniform(words_at(seed, offset, large)))[0]
        numbers[large] = np.floor(normal * np.sqrt(rate[large]) + rate[large] + 0.5)
    memory.store(0, numbers)
    return len(small) + len(large) < memory.size


def _poisson(seed: int, offset: int, threads: Numbers, rates: Numbers) -> Numbers:
    """The number of factors until a product of uniform numbers is below exp(-rate) (Knuth)."""
    products, counts = np.exp(rates), np.zeros(len(rates), np.int64)
    active, drawn = np.arange(len(rates)), 0
    while len(active):
        if drawn % philox.WORDS == 0:
            uniform = np.empty((philox.WORDS, len(rates)), np.float32)
            uniform[:, active] = _uniform(words_at(seed, offset + drawn, threads[active]))
        products[active] *= uniform[drawn % philox.WORDS, active]
        active = active[products[active] > 1]
        counts[active] += 1
        drawn += 1
    return counts


# --------------------------------------------------------------------- permutations and samples


def fill_permutation(memory: Memory) -> None:
    """Indices sorted by random keys of 32 bits, or by as many of these as make few keys equal."""
    n = memory.size
    drawn = Scratch(memory, np.uint32)
    _fill(drawn, 4, lambda words: words.T % np.uint64(_LARGEST_WORD))
    keys = drawn.values ^ _SIGN
    bits = int(np.ceil(np.log2(n - (6 * n**2 + 1) / (12 * np.log(0.9)))))
    # keys with all their bits are sorted as signed numbers
    sorted_by = drawn.values if bits >= 32 else keys & np.uint32((1 << bits) - 1)
    order = np.argsort(sorted_by, kind="stable")
    _shuffle_equal(order, keys[order], *memory.generator.advance(n))
    memory.store(0, order)


def _shuffle_equal(order: Numbers, keys: Numbers, seed: int, offset: int) -> None:
    for first, length in _runs(keys):
        for step in range(length - 1):
            i = length - 1 - step
            words = words_at(seed, offset + step, np.array([first]))
            other = first + int(words[0, 0]) % (i + 1)
            order[[first + i, other]] = order[[other, first + i]]


def _runs(keys: Numbers) -> Iterator[tuple[int, int]]:
    """Where runs of equal keys begin, and their lengths."""
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1], [True]]))
    lengths = np.diff(begins)
    for i in np.flatnonzero(lengths > 1):
        yield int(begins[i]), int(lengths[i])


def fill_samples(memory: Memory, weights: Memory, rows: int, replacement: bool) -> None:
    shares = weights.read().reshape(rows, -1)
    samples = memory.size // rows
    if replacement:
        memory.store(0, _with_replacement(memory.generator, shares, samples).reshape(-1))
        return
    drawn = Scratch(weights, shares.dtype)
    fill_exponential(drawn, 1.0)
    quotients = shares / drawn.values.reshape(shares.shape)
    order = np.argsort(-quotients, axis=1, kind="stable")
    memory.store(0, order[:, :samples].reshape(-1))


def _with_replacement(of: Generator, shares: Numbers, samples: int) -> Numbers:
    """By a thread for each sample of each row."""
    block = 128
    seed, offset = of.advance(philox.WORDS)
    shares = shares / shares.sum(1, keepdims=True)
    sums = np.cumsum(shares, axis=1, dtype=shares.dtype)
    result = np.empty((len(shares), samples), np.int64)
    for row, limits in enumerate(sums):
        threads = row * -(-samples // block) * block + np.arange(samples)
        uniform = _uniform(words_at(seed, offset, threads))[0]
        found = np.searchsorted(limits, uniform.astype(shares.dtype))
        last_possible = np.flatnonzero(shares[row])
        # a category without probability is not chosen: the one before it is
        found = np.minimum(found, shares.shape[1] - 1)
        result[row] = last_possible[np.searchsorted(last_possible, found, side="right") - 1]
    return result
