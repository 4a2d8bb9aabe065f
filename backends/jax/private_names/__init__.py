"""The private names of JAX that the adapter replaces or reads: see ``names.txt``."""

from typing import Any

from xdevice.backends.kit.private_names import PrivateNames

LAST_TRIED = {"0.12.0.1": "3.12 3.13 3.14", "0.10.2": "3.11"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

names = PrivateNames(__file__, "jax", "jax", LAST_TRIED)
NAMES = names.of()
optional = names.optional

# JAX's transfer guard, which forbids copies; the second is its name in older versions
guard: Any = optional("jax._src.config:guard_lib", "jax._src.config:transfer_guard_lib")
