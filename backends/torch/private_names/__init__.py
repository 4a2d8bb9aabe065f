"""The private names of PyTorch that the adapter replaces or reads: see ``names.txt``."""

from typing import Any

import torch

from xdevice.backends.kit.private_names import PrivateNames

LAST_TRIED = {"2.15.0": "3.11 3.12 3.13 3.14", "2.13.0": "3.10"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

untyped_torch: Any = torch  # for names that have no types
core: Any = torch._C  # it has no public counterpart

names = PrivateNames(__file__, "torch", "torch", LAST_TRIED)
NAMES = names.of()
replace_name = names.replace
