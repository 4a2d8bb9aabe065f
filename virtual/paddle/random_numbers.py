"""Operations of PaddlePaddle that draw random numbers, as on GPUs.

Operations with a seed of their own, those that are not in `_DRAWS`, and complex numbers have the
CPU's numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.base import core as _core

from xdevice.contract import Tensor
from xdevice.virtual.paddle import drawing, repairs
from xdevice.virtual.paddle.drawing import Memory
from xdevice.virtual.paddle.generators import generator
from xdevice.virtual.paddle.places import framework
from xdevice.virtual.paddle.private_names import Function, in_place_of

core: Any = _core


def start() -> None:
    """Let operations on virtual GPUs draw as on GPUs."""
    repairs.generator_of_gpu = generator
    for name, draw in _DRAWS.items():
        in_place_of(f"paddle._C_ops:{name}")(_as_on_gpu(draw))
    in_place_of("paddle._C_ops:dropout")(_dropout)
    in_place_of("paddle._C_ops:dropout_")(_dropout_in_place)


def _as_on_gpu(draw: "_Draw") -> Function:
    """Let the operation draw as on a GPU where its result is on one."""

    def drawn(native: Function, *args: Any, **kwargs: Any) -> Any:
        is_seeded = draw.seed is not None and args[draw.seed] != 0
        if is_seeded or not framework.in_dygraph_mode():
            return native(*args, **kwargs)
        result = _uninitialized(draw, args, kwargs)
        if result is not None:
            draw.fill(Memory(result), *args)
            return result
        # draw on the CPU, and then overwrite what is on a GPU
        host = core.default_cpu_generator()
        before = host.get_state()
        result = native(*args, **kwargs)
        is_real = result.dtype in _FLOATS + _INTEGERS
        if result.place.is_gpu_place() and result.size and is_real:
            after = host.get_state()
            is_partly_the_cpus = draw.fill(Memory(result), *args)
            # a GPU draws nothing from the CPU's generator
            host.set_state(after if is_partly_the_cpus else before)
        return result

    return drawn


def _uninitialized(draw: "_Draw", args: Any, kwargs: Any) -> Tensor | None:
    """A tensor on a GPU for the operation's result.

    None where the native operation checks the arguments, or returns something else.
    """
    if draw.new is None or any(value is not None for value in kwargs.values()):
        return None
    shape, dtype, place = draw.new(*args)
    if not isinstance(place, core.CUDAPlace) or dtype not in draw.dtypes:
        return None
    if not isinstance(shape, list) or not all(isinstance(n, int) and n > 0 for n in shape):
        return None
    return paddle._C_ops.empty(shape, dtype, place)


def _dropout(native: Function, x: Tensor, *args: Any) -> Any:
    """Dropout with a GPU's mask."""
    seed, p, is_test, mode, _, has_seed = args
    on_gpu = framework.in_dygraph_mode() and x.place.is_gpu_place()
    if not on_gpu or is_test or seed is not None or has_seed or p == 1 or not x.size:
        return native(x, *args)
    noise = x.detach().clone()
    if x.dtype != paddle.float64:
        noise = noise.astype("float32")
    kept = np.float32(1) - np.float32(p)
    factor = np.float32(1) / kept if mode == "upscale_in_train" else np.float32(1)
    drawing.fill_noise(Memory(noise), float(kept), float(factor))
    return (x.astype(noise.dtype) * noise).astype(x.dtype)


def _dropout_in_place(native: Function, x: Tensor, *args: Any) -> Any:
    result = _dropout(native, x, *args)
    return result if result is x else paddle.assign(result, x)


_FLOATS = (paddle.float32, paddle.float64, paddle.float16, paddle.bfloat16)
_INTEGERS = (paddle.int32, paddle.int64)


class _Draw(NamedTuple):
    fill: Callable[..., bool | None]
    """A function of the result's memory and the operation's arguments.

    It returns True if it leaves some of the CPU's numbers.
    """
    seed: int | None = None
    """The position of the argument with the operation's own seed."""
    new: Callable[..., tuple[Any, Any, Any]] | None = None
    """The shape, the dtype and the place of a new tensor, by the operation's arguments."""
    dtypes: tuple[Any, ...] = ()
    """Those of a new tensor."""


def _samples(memory: Memory, x: Tensor, number: int, replacement: bool) -> None:
    rows = x.shape[0] if x.ndim > 1 else 1
    drawing.fill_samples(memory, Memory(x), rows, replacement)


def _new_integers(low: int, high: int, *of_tensor: Any) -> tuple[Any, Any, Any]:
    shape, dtype, place = of_tensor
    return shape if low < high else None, dtype, place


_DRAWS = {
    "uniform": _Draw(
        lambda to, shape, dtype, low, high, *_: drawing.fill_uniform(to, low, high),
        seed=4,
        new=lambda shape, dtype, low, high, seed, place: (shape, dtype, place),
        dtypes=_FLOATS,
    ),
    "uniform_inplace_": _Draw(lambda to, x, low, high, *_: drawing.fill_uniform(to, low, high), 3),
    "gaussian": _Draw(
        lambda to, shape, mean, std, *_: drawing.fill_normal(to, mean, std),
        seed=3,
        new=lambda shape, mean, std, seed, dtype, place: (shape, dtype, place),
        dtypes=_FLOATS,
    ),
    "gaussian_inplace_": _Draw(lambda to, x, mean, std, *_: drawing.fill_normal(to, mean, std), 3),
    "randint": _Draw(
        lambda to, low, high, *_: drawing.fill_integers(to, low, high),
        new=_new_integers,
        dtypes=_INTEGERS,
    ),
    "randperm": _Draw(
        lambda to, *_: drawing.fill_permutation(to),
        new=lambda n, dtype, place: ([n], dtype, place),
        dtypes=_INTEGERS,
    ),
    "exponential_": _Draw(lambda to, x, rate: drawing.fill_exponential(to, rate)),
    "bernoulli": _Draw(lambda to, x: drawing.fill_trials(to, Memory(x))),
    "poisson": _Draw(lambda to, x: drawing.fill_poisson(to, Memory(x))),
    "multinomial": _Draw(_samples),
}
"""By the names of operations."""
