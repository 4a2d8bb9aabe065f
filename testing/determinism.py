"""`deterministic`: settings under which frameworks, and runs, can be compared."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from xdevice.errors import NotSupportedError, XDeviceError
from xdevice.framework import choosing
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import using
from xdevice.tensors import creation

if TYPE_CHECKING:
    import pytest

ENVIRONMENT = {"TF_ENABLE_ONEDNN_OPTS": "0", "NVIDIA_TF32_OVERRIDE": "0"}
"""What can only be set before a framework is imported: the plugin's option sets it."""


@contextmanager
def deterministic(seed: int | None = 0, *, x64: bool = True) -> Iterator[None]:
    """A block in which the results of frameworks, and of runs, can be compared.

    It holds for the chosen framework and for those that are imported. All
    settings are process-wide, and are as before after the block:

    - PyTorch, TensorFlow, PaddlePaddle, JAX: no TF32; products of float32
      matrices have the precision of float32.
    - PyTorch: oneDNN, which adds in another order, is not used.
    - PyTorch, PaddlePaddle: cuDNN chooses deterministic algorithms.
    - JAX: dtypes of 64 bits exist, and are the default.
    - Random numbers: `random`, NumPy and the frameworks are seeded.

    TensorFlow's oneDNN, and TF32 under MXNet and CuPy, can be switched off only
    before the framework is imported:
    ``pytest --xdevice-deterministic`` does, or the environment variables
    ``TF_ENABLE_ONEDNN_OPTS=0`` and ``NVIDIA_TF32_OVERRIDE=0``.

    Parameters
    ----------
    seed
        For random numbers; ``None`` leaves them alone. Afterwards `random` and
        NumPy continue where they were, and the frameworks do not.
    x64
        ``False`` leaves JAX's dtypes as they are.

    Examples
    --------
    >>> import xdevice
    >>> from xdevice.testing import deterministic
    >>> with deterministic():
    ...     x = xdevice.rand(3)
    >>> with deterministic():
    ...     y = xdevice.rand(3)
    >>> (x == y).all().item()
    True
    """
    chosen = choosing.backend()
    owners = [chosen, *(owner for owner in imported() if owner != chosen)]
    with ExitStack() as blocks:
        for owner in owners:
            blocks.enter_context(_comparable_block(owner, x64, is_chosen=owner == chosen))
        if seed is not None:
            blocks.enter_context(_seeded(seed, owners))
        yield


def comparable(
    config: pytest.Config, fixtures: Collection[str], name: str
) -> AbstractContextManager[None]:
    """`deterministic` for a test that asks for it, by its fixtures or by the option."""
    if config.getoption("--xdevice-deterministic") or "deterministic" in fixtures:
        return _deterministic_under(name)
    return nullcontext()


@contextmanager
def _deterministic_under(name: str) -> Iterator[None]:
    with using(name), deterministic():
        yield


def _comparable_block(owner: Backend, x64: bool, *, is_chosen: bool) -> AbstractContextManager[Any]:
    try:
        numerics = owner.load("numerics")
    except XDeviceError:  # a framework that is imported, and that the adapter cannot use
        if is_chosen:
            raise
        return nullcontext()
    if not numerics.has("comparable"):
        return nullcontext()
    return owner.numerics.comparable(x64)


@contextmanager
def _seeded(seed: int, owners: list[Backend]) -> Iterator[None]:
    former = random.getstate()
    random.seed(seed)
    numpy: Any = sys.modules.get("numpy")
    former_numpy: Any = numpy and numpy.random.get_state()
    if numpy:
        numpy.random.seed(seed)
    for owner in owners:
        with using(owner), suppress(NotSupportedError):
            creation.seed(seed)
    try:
        yield
    finally:
        random.setstate(former)
        if numpy:
            numpy.random.set_state(former_numpy)
