"""Random numbers as MXNet draws them on GPUs: `mx.nd.random.uniform` and `normal`.

MXNet's GPUs draw by cuRAND's Philox4x32-10. Each GPU has four generators, whose seeds depend on
the GPU's index, and the operations use them in turn. A generator has 32768 states, each with a
sequence of its own. A state draws at least 64 consecutive numbers of an operation.

Operations with numbers as their parameters draw so, in calls. All others have the CPU's numbers:
those with arrays as their parameters, those in graphs, `mx.np.random`, and other distributions.
MXNet uses another generator for `mx.np.random` on GPUs.
"""

import ast
import ctypes
import os
import threading
from typing import Any, NamedTuple, TypeAlias

import mxnet as mx
import numpy as np
from mxnet import base

from xdevice.backends.mxnet import mixing
from xdevice.backends.mxnet.hardware import FIRST_VIRTUAL, count
from xdevice.virtual import philox
from xdevice.virtual.mxnet.files import GPU
from xdevice.virtual.mxnet.private_names import Array, CValue, Function, in_library

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]

_base: Any = base
_STATES = 32768
_NUMBERS_OF_STATE = 64  # at least, if there are as many
_COPIES = int(os.environ.get("MXNET_GPU_PARALLEL_RAND_COPY", "4"))
_SEED_FACTOR, _COPY_FACTOR = 127, 16  # in the seed of a generator
_DRAWN_DTYPES = {"None": "float32", "float32": "float32", "float16": "float16"}
_STEP = np.float32(2.0**-32)


class _Generator:
    """One of a GPU's generators."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn = np.zeros(_STATES, np.int64)  # words, by each state
        # the second number of a pair of normal ones, where the first was the last of an operation
        self._spare = np.full(_STATES, np.nan, np.float32)

    def uniform(self, size: int) -> Numbers:
        """Numbers from 0 to 1, without 1."""
        share = _Share.of(size)
        words = self._words(share, share.each)
        self._drawn[: share.states] += share.counts
        return share.join(1 - (words * _STEP + _STEP / 2))

    def normal(self, size: int) -> Numbers:
        share = _Share.of(size)
        spare = self._spare[: share.states]
        has_spare = ~np.isnan(spare)
        pairs = (share.counts - has_spare + 1) // 2
        words = self._words(share, 2 * ((share.each + 1) // 2))
        self._drawn[: share.states] += 2 * pairs
        numbers = np.concatenate([spare[:, None], _normal(words)], axis=1)
        order = np.arange(share.each) + ~has_spare[:, None]
        drawn: Numbers = np.take_along_axis(numbers, order, axis=1)
        # what is left is the number after the last one
        left = (share.counts - has_spare) % 2 == 1
        last = np.take_along_axis(numbers, 2 * pairs[:, None], axis=1)[:, 0]
        self._spare[: share.states] = np.where(left, last, np.float32(np.nan))
        return share.join(drawn)

    def _words(self, share: "_Share", width: int) -> Numbers:
        """The next words of each state, as float32."""
        begin = self._drawn[: share.states]
        blocks = (width + 2 * (philox.WORDS - 1)) // philox.WORDS
        counters = begin[:, None] // philox.WORDS + np.arange(blocks)
        states = np.broadcast_to(np.arange(share.states)[:, None], counters.shape)
        key = self._seed & 0xFFFFFFFF
        words = philox.words(key, counters.astype(np.uint64), states.astype(np.uint64))
        words = words.reshape(share.states, blocks * philox.WORDS)
        order = begin[:, None] % philox.WORDS + np.arange(width)
        result: Numbers = np.take_along_axis(words, order, axis=1).astype(np.float32)
        return result


class _Share(NamedTuple):
    """How the states share the numbers of an operation."""

    size: int
    states: int
    each: int
    """The numbers of each state but the last ones."""

    @classmethod
    def of(cls, size: int) -> "_Share":
        states = max(1, min(-(-size // _NUMBERS_OF_STATE), _STATES))
        return cls(size, states, -(-size // states))

    @property
    def counts(self) -> Any:
        """How many numbers each state draws."""
        return np.clip(self.size - np.arange(self.states) * self.each, 0, self.each)

    def join(self, numbers: Numbers) -> Numbers:
        """The numbers of all states in order; only the last states draw fewer than the others."""
        return numbers.reshape(-1)[: self.size]


def _normal(words: Numbers) -> Numbers:
    """Two numbers of each two words, by Box and Muller's transform."""
    uniform = words * _STEP + _STEP / 2
    radius = np.sqrt(-2 * np.log(uniform[:, ::2]))
    angle = np.float32(2 * np.pi) * uniform[:, 1::2]
    pairs = np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=2)
    return pairs.reshape(len(words), -1)


class _GPU:
    """The generators of a GPU, which operations use in turn."""

    def __init__(self, seed: int) -> None:
        self._generators = [_Generator(seed + _COPY_FACTOR * i) for i in range(_COPIES)]
        self._turn = 0

    def next(self) -> _Generator:
        self._turn += 1
        return self._generators[self._turn % _COPIES]


class _Thread(threading.local):
    """The generators of a thread; MXNet has them for each."""

    def __init__(self) -> None:
        self.seed = 0
        self.gpus: dict[int, _GPU] = {}

    def gpu(self, index: int) -> _GPU:
        if index not in self.gpus:
            self.gpus[index] = _GPU(self.seed * _SEED_FACTOR + index)
        return self.gpus[index]


_thread = _Thread()


def start() -> None:
    """Let the operators for random numbers draw as on GPUs."""
    in_library("MXRandomSeed")(_seed_all)
    in_library("MXRandomSeedContext")(_seed_one)
    in_library(mixing.OPERATOR)(_invoke)


def _seed_all(native: Function, seed: CValue) -> int:
    _thread.seed = _as_int(seed)
    _thread.gpus.clear()
    return int(native(seed))


def _seed_one(native: Function, seed: CValue, device_type: CValue, index: CValue) -> int:
    """Seed one device, whose index then has no influence."""
    if _as_int(device_type) == GPU:
        _thread.gpus[_as_int(index)] = _GPU(_as_int(seed) * _SEED_FACTOR)
    return int(native(seed, device_type, index))


def _as_int(value: CValue) -> int:
    number: Any = getattr(value, "value", value)
    return int(number)


def _invoke(native: Function, *args: CValue) -> int:
    """Run an operator; one that draws numbers on a GPU fills its result here."""
    draw = _DRAWS.get(_name_of(args[0].value))
    if draw is None:
        return int(native(*args))
    number, keys, values = _as_int(args[5]), args[6], args[7]
    options = {keys[i].decode(): values[i].decode() for i in range(number)}
    given = mixing.results_of(args[3], args[4])
    index = _gpu_of(given, options)
    dtype = _DRAWN_DTYPES.get(options.get("dtype", "None"))
    if index is None or dtype is None:
        return int(native(*args))
    if not given and _create(native, args, options, dtype):
        return int(native(*args))  # which has the operator's own error
    _fill(mixing.results_of(args[3], args[4])[0], draw, options, _thread.gpu(index))
    return 0


_names: dict[int, str] = {}


def _name_of(operator: int) -> str:
    if operator not in _names:
        _names[operator] = mixing.name_of(operator)
    return _names[operator]


def _gpu_of(given: list[mixing.Handle], options: dict[str, str]) -> int | None:
    """The index of the virtual GPU that draws, or nothing for the CPU."""
    if given:
        device_type, index = mixing.context_of(given[0])
        return index if device_type == GPU else None
    context = options.get("ctx", "")
    if context.startswith("cpu("):
        index = int(context[4:-1]) - FIRST_VIRTUAL
        return index if 0 <= index < count("gpu") else None
    return None


def _create(native: Function, args: tuple[CValue, ...], options: dict[str, str], dtype: str) -> int:
    """Let the library create the result, as an array of zeros."""
    operator = ctypes.c_void_p()
    mx.base.check_call(_base._LIB.NNGetOpHandle(b"_zeros", ctypes.byref(operator)))
    texts = {"shape": options.get("shape", "(1,)"), "ctx": options["ctx"], "dtype": dtype}
    keys = mx.base.c_str_array(list(texts))
    values = mx.base.c_str_array(list(texts.values()))
    return int(native(operator, *args[1:5], ctypes.c_int(len(texts)), keys, values, *args[8:]))


def _fill(handle: mixing.Handle, draw: "_Draw", options: dict[str, str], gpu: _GPU) -> None:
    from xdevice.transfers.watching import unseen  # not before numbers are drawn

    new_handle = ctypes.c_void_p()
    mx.base.check_call(
        _base._LIB.MXShallowCopyNDArray(ctypes.c_void_p(handle), ctypes.byref(new_handle))
    )
    array: Array = mx.nd.NDArray(_base.NDArrayHandle(new_handle.value))
    first, second = (float(ast.literal_eval(options.get(name, text))) for name, text in draw.names)
    generator = gpu.next()
    numbers = draw.function(generator, array.size, np.float32(first), np.float32(second))
    with unseen():  # a GPU draws its numbers itself: nothing is copied
        array._sync_copyfrom(numbers.astype(array.dtype).reshape(array.shape))


def _uniform(generator: _Generator, size: int, low: np.float32, high: np.float32) -> Numbers:
    return low + (high - low) * generator.uniform(size)


def _gaussian(generator: _Generator, size: int, mean: np.float32, std: np.float32) -> Numbers:
    return generator.normal(size) * std + mean


class _Draw(NamedTuple):
    function: Any
    names: tuple[tuple[str, str], tuple[str, str]]
    """The operator's names for the two parameters, with their defaults."""


_DRAWS = {
    "_random_uniform": _Draw(_uniform, (("low", "0"), ("high", "1"))),
    "_random_normal": _Draw(_gaussian, (("loc", "0"), ("scale", "1"))),
}
