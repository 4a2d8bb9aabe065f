"""What the kernels of PaddlePaddle draw on GPUs, by cuRAND's Philox4x32-10, in the plug-in's C++.

The generator's seed is the key. Each thread has a sequence of words of its own, and the generator's
offset is the position in it. How many threads there are depends on the GPU's model.
"""

import ctypes
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import paddle

from xdevice.contract import Tensor
from xdevice.virtual import paddle as virtual
from xdevice.virtual import request
from xdevice.virtual.models import MODELS, USUAL, Model
from xdevice.virtual.paddle.generators import Generator, generator

Numbers: TypeAlias = Any  # an array of any dtype

_BLOCK = 256  # threads
_WORDS = 4  # that a thread draws at once

_FLOAT, _DOUBLE, _INT = ctypes.c_float, ctypes.c_double, ctypes.c_int64
_WORD, _ADDRESS = ctypes.c_uint64, ctypes.c_size_t
_PLACE = (_INT, _INT, _WORD, _WORD, _ADDRESS)  # elements, threads, seed, offset, and the array
_ARGUMENTS = {
    "DrawUniform": (_DOUBLE, _DOUBLE),
    "DrawNormal": (_DOUBLE, _DOUBLE),
    "DrawExponential": (_DOUBLE,),
    "DrawIntegers": (_INT, _WORD),
    "DrawTrials": (_ADDRESS,),
    "DrawNoise": (_FLOAT, _FLOAT),
    "DrawPoisson": (_ADDRESS,),
    "DrawPermutation": (_WORD,),
}
"""The functions of random.h that fill an array, and what they take beside `_PLACE`."""


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

    def read(self) -> Numbers:
        """The numbers; those of 16-bit floats as float32, which `store` rounds."""
        if self._is_bfloat16:
            return (self._values.astype(np.uint32) << 16).view(np.float32)
        if self._values.dtype == np.float16:
            return self._values.astype(np.float32)
        return self._values

    def store(self, numbers: Numbers) -> None:
        if numbers is self._values:
            return
        if self._is_bfloat16:
            bits = numbers.astype(np.float32).view(np.uint32)
            numbers = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # rounded to even
        self._values[:] = numbers


def model() -> Model:
    return MODELS.get(request.current().model, USUAL)


@cache
def _function(name: str, bits: int) -> Any:
    function = getattr(virtual.library(), f"{name}{bits}")
    function.argtypes = (*_PLACE, *_ARGUMENTS[name])
    function.restype = ctypes.c_bool
    return function


def _draw(name: str, to: Numbers, threads: int, begin: tuple[int, int], *arguments: Any) -> Any:
    """Call a function of random.h for the elements of an array."""
    bits = 8 * to.dtype.itemsize
    return _function(name, bits)(to.size, threads, *begin, to.ctypes.data, *arguments)


# ----------------------------------- a thread's numbers are for elements that are a grid apart


def _begin(of: Generator, size: int) -> tuple[int, tuple[int, int]]:
    """The threads for so many elements, and the seed and the offset at which they begin."""
    gpu = model()
    threads = _BLOCK * min(-(-size // _BLOCK), gpu.threads // _BLOCK * gpu.multiprocessors)
    return threads, of.advance(_WORDS * -(-size // (_WORDS * threads)))


def _fill(name: str, memory: Memory, *arguments: Any) -> None:
    numbers = memory.read()
    _draw(name, numbers, *_begin(memory.generator, memory.size), *arguments)
    memory.store(numbers)


def fill_uniform(memory: Memory, low: float, high: float) -> None:
    _fill("DrawUniform", memory, low, high)


def fill_normal(memory: Memory, mean: float, std: float) -> None:
    _fill("DrawNormal", memory, mean, std)


def fill_exponential(memory: Memory, rate: float) -> None:
    _fill("DrawExponential", memory, rate)


def fill_integers(memory: Memory, low: int, high: int) -> None:
    _fill("DrawIntegers", memory, low, high - low)


# ------------------------------------------------- a thread's numbers are for four neighbours


def launch(size: int) -> tuple[int, int]:
    """The blocks and the threads of each with which PaddlePaddle starts such a kernel."""
    most, multiprocessors = 512, model().multiprocessors
    threads = most
    for factor in (2, 4):
        share = size // _WORDS // (multiprocessors * factor)
        if share < most:
            threads = max(64, 1 << max(0, share - 1).bit_length())
            break
    return -(-size // (_WORDS * threads)), threads


def fill_trials(memory: Memory, probabilities: Memory) -> None:
    blocks, threads = launch(memory.size)
    begin = memory.generator.advance(12)
    numbers, chances = memory.read(), probabilities.read()
    _draw("DrawTrials", numbers, blocks * threads, begin, chances.ctypes.data)
    memory.store(numbers)


def fill_noise(memory: Memory, kept: float, factor: float) -> None:
    """Fill the memory with 0, and where values are kept with the factor."""
    blocks, threads = launch(memory.size)
    gpu = model()
    grid = threads * min(blocks, gpu.threads * gpu.multiprocessors // threads)
    begin = memory.generator.advance(_WORDS * -(-memory.size // (_WORDS * grid)))
    numbers = memory.read()
    _draw("DrawNoise", numbers, grid, begin, kept, factor)
    memory.store(numbers)


# ------------------------------------------------------------------- one thread for each element


def fill_poisson(memory: Memory, rates: Memory) -> bool:
    """Fill with numbers of Poisson's distribution, but not where rates are from 64 to 4000.

    Returns whether there are such rates.
    """
    begin = memory.generator.advance(20)
    numbers, of = memory.read(), rates.read()
    any_left: bool = _draw("DrawPoisson", numbers, memory.size, begin, of.ctypes.data)
    memory.store(numbers)
    return any_left


# --------------------------------------------------------------------- permutations and samples


def fill_permutation(memory: Memory) -> None:
    """Indices sorted by random keys of 32 bits, or by as many of these as make few keys equal."""
    order = memory.read()
    if order.dtype != np.int64:
        order = np.empty(memory.size, np.int64)
    threads, begin = _begin(memory.generator, memory.size)
    _, shuffling = memory.generator.advance(memory.size)
    if not _draw("DrawPermutation", order, threads, begin, shuffling):
        raise MemoryError(f"randperm({memory.size}) has too little memory for its keys")
    memory.store(order)


def fill_samples(memory: Memory, weights: Memory, rows: int, replacement: bool) -> None:
    shares = weights.read().reshape(rows, -1)
    samples = memory.size // rows
    if replacement:
        memory.store(_with_replacement(memory.generator, shares, samples).reshape(-1))
        return
    drawn = np.empty(shares.shape, shares.dtype)
    _draw("DrawExponential", drawn, *_begin(memory.generator, drawn.size), 1.0)
    order = np.argsort(-(shares / drawn), axis=1, kind="stable")
    memory.store(order[:, :samples].reshape(-1))


def _with_replacement(of: Generator, shares: Numbers, samples: int) -> Numbers:
    """By a thread for each sample of each row."""
    block = 128
    begin = of.advance(_WORDS)
    shares = shares / shares.sum(1, keepdims=True)
    sums = np.cumsum(shares, axis=1, dtype=shares.dtype)
    result = np.empty((len(shares), samples), np.int64)
    uniform = np.empty(samples, np.float32)
    for row, limits in enumerate(sums):
        first_thread = row * -(-samples // block) * block
        _draw_by_threads(uniform, first_thread, begin)
        found = np.searchsorted(limits, uniform.astype(shares.dtype))
        last_possible = np.flatnonzero(shares[row])
        # a category without probability is not chosen: the one before it is
        found = np.minimum(found, shares.shape[1] - 1)
        result[row] = last_possible[np.searchsorted(last_possible, found, side="right") - 1]
    return result


def _draw_by_threads(numbers: Numbers, first_thread: int, begin: tuple[int, int]) -> None:
    """Fill the array with the first uniform number of each thread."""
    function = virtual.library().DrawOfThreads
    function.argtypes = (_INT, _INT, _WORD, _WORD, _ADDRESS)
    function(numbers.size, first_thread, *begin, numbers.ctypes.data)
