"""Numbers that can be compared: 64 bits, and float32 in matrix products."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax


@contextmanager
def comparable(x64: bool) -> Iterator[None]:
    settings: dict[str, object] = {"jax_default_matmul_precision": "highest"}
    if x64:
        settings["jax_enable_x64"] = True
    update: Callable[[str, object], None] = jax.config.update
    former = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        update(name, value)
    try:
        yield
    finally:
        for name, value in former.items():
            update(name, value)
