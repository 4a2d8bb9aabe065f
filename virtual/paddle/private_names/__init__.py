"""The private names of PaddlePaddle that only virtual GPUs replace or read: see ``names.txt``."""

from collections.abc import Callable
from typing import Any, TypeAlias

from xdevice.backends.kit.private_names import PrivateNames

Function: TypeAlias = Callable[..., Any]

LAST_TRIED = {"3.3.1": "3.10 3.11 3.12 3.13"}
"""The newest version that has all of these names, and passed on virtual GPUs.

The value names the Pythons that have wheels of it.
"""

names = PrivateNames(__file__, "paddle", "paddlepaddle", LAST_TRIED)
VIRTUAL, STAND_IN, NAMES = names.of("VIRTUAL"), names.of("STAND_IN"), names.of()
in_place_of, replace_name = names.in_place_of, names.replace
