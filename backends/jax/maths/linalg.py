"""JAX's functions of the array API standard's extension ``linalg``: ``jax.numpy.linalg`` itself."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import jax.numpy as jnp


def namespace() -> Mapping[str, Any]:
    return vars(jnp.linalg)


def module() -> ModuleType:
    return jnp.linalg
