"""Operations of PaddlePaddle that draw random numbers, as on GPUs.

Operations with a seed of their own, and those that are not in `_DRAWS`, have the CPU's numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.base import core as _core

from xdevice.contract import Tensor
from xdevice.virtual import philox
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
    """Let the operation draw on the CPU, and then overwrite what is on a GPU."""

    def drawn(native: Function, *args: Any, **kwargs: Any) -> Any:
        if not framework.in_dygraph_mode():
            return native(*args, **kwargs)
        host = core.default_cpu_generator()
        before = host.get_state()
        result: Tensor = native(*args, **kwargs)
        is_seeded = draw.seed is not None and args[draw.seed] != 0
        if result.place.is_gpu_place() and not is_seeded and result.size:
            after = host.get_state()
            is_partly_the_cpus = draw.fill(Memory(result), *args)
            # a GPU draws nothing from the CPU's generator
            host.set_state(after if is_partly_the_cpus else before)
        return result

    return drawn


def _dropout(native: Function, x: Tensor, *args: Any) -> Any:
    """Dropout with a GPU's mask."""
    seed, p, is_test, mode, _, has_seed = args
    on_gpu = framework.in_dygraph_mode() and x.place.is_gpu_place()
    if not on_gpu or is_test or seed is not None or has_seed or p == 1 or not x.size:
        return native(x, *args)
    noise = x.detach().clone()
    if x.dtype != paddle.float64:
        noise = noise.astype("float32")
    _fill_noise(Memory(noise), p, mode == "upscale_in_train")
    return (x.astype(noise.dtype) * noise).astype(x.dtype)


def _fill_noise(memory: Memory, p: float, is_scaled: bool) -> None:
    """Fill the memory with 0, and where values are kept with their factor."""
    blocks, threads = drawing.launch(memory.size)
    gpu = drawing.model()
    grid = threads * min(blocks, gpu.threads * gpu.multiprocessors // threads)
    increment = philox.WORDS * -(-memory.size // (philox.WORDS * grid))
    kept = np.float32(1) - np.float32(p)
    factor = np.float32(1) / kept if is_scaled else np.float32(1)
    memory.store(0, (drawing.uniform_of_neighbours(memory, grid, increment) < kept) * factor)


def _dropout_in_place(native: Function, x: Tensor, *args: Any) -> Any:
    result = _dropout(native, x, *args)
    return result if result is x else paddle.assign(result, x)


class _Draw(NamedTuple):
    fill: Callable[..., bool | None]
    """A function of the result's memory and the operation's arguments.

    It returns True if it leaves some of the CPU's numbers.
    """
    seed: int | None = None
    """The position of the argument with the operation's own seed."""


def _samples(memory: Memory, x: Tensor, number: int, replacement: bool) -> None:
    rows = x.shape[0] if x.ndim > 1 else 1
    drawing.fill_samples(memory, Memory(x), rows, replacement)


_DRAWS = {
    "uniform": _Draw(
        lambda to, shape, dtype, low, high, *_: drawing.fill_uniform(to, low, high), 4
    ),
    "uniform_inplace_": _Draw(lambda to, x, low, high, *_: drawing.fill_uniform(to, low, high), 3),
    "gaussian": _Draw(lambda to, shape, mean, std, *_: drawing.fill_normal(to, mean, std), 3),
    "gaussian_inplace_": _Draw(lambda to, x, mean, std, *_: drawing.fill_normal(to, mean, std), 3),
    "randint": _Draw(lambda to, low, high, *_: drawing.fill_integers(to, low, high)),
    "randperm": _Draw(lambda to, *_: drawing.fill_permutation(to)),
    "exponential_": _Draw(lambda to, x, rate: drawing.fill_exponential(to, rate)),
    "bernoulli": _Draw(lambda to, x: drawing.fill_trials(to, Memory(x))),
    "poisson": _Draw(lambda to, x: drawing.fill_poisson(to, Memory(x))),
    "multinomial": _Draw(_samples),
}
"""By the names of operations."""
