"""JAX's functions of the array API standard's extension ``fft``: ``jax.numpy.fft`` itself."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import jax.numpy as jnp


def namespace() -> Mapping[str, Any]:
    return vars(jnp.fft)


def module() -> ModuleType:
    return jnp.fft
