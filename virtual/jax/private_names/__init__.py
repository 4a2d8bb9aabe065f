"""The private names of JAX that only virtual GPUs replace or read: see ``names.txt``."""

from collections.abc import Callable
from typing import Any, TypeAlias

from xdevice.backends.kit.private_names import PrivateNames

Function: TypeAlias = Callable[..., Any]

LAST_TRIED = {"0.12.0.1": "3.12 3.13 3.14", "0.10.2": "3.11"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

names = PrivateNames(__file__, "jax", "jax", LAST_TRIED)
VIRTUAL, STAND_IN, NAMES = names.of("VIRTUAL"), names.of("STAND_IN"), names.of()
in_place_of, replace_name, optional = names.in_place_of, names.replace, names.optional
