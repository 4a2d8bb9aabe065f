"""How much memory each virtual GPU is to have: the environment variable ``XDEVICE_VIRTUAL_MEMORY``."""

import os

from xdevice.errors import ArgumentError
from xdevice.kit.units import parsed_size

ENV = "XDEVICE_VIRTUAL_MEMORY"


def limit() -> int | None:
    """The bytes of each virtual GPU; ``None`` where no limit is asked for."""
    text = os.environ.get(ENV, "").strip()
    if not text:
        return None
    size = parsed_size(text)
    if not size:
        raise ArgumentError(f"{ENV}={text} is not a size in memory; write {ENV}=4GiB, or a number of bytes")
    return size
