"""How much memory each virtual GPU is to have: the environment variable ``XDEVICE_VIRTUAL_MEMORY``."""

from __future__ import annotations

import os
import re

from xdevice.errors import ArgumentError

ENV = "XDEVICE_VIRTUAL_MEMORY"
_UNITS = {  # in lower case
    "": 1,
    "b": 1,
    **{f"{p}{unit}": base**i for unit, base in (("ib", 1024), ("b", 1000)) for i, p in enumerate("kmgt", 1)},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def limit() -> int | None:
    """The bytes of each virtual GPU, or None where no limit is asked for.

    Raises
    ------
    ArgumentError
        The variable is not a size, such as ``4GiB``, ``512 MiB`` or a number of bytes.
    """
    text = os.environ.get(ENV, "").strip()
    if not text:
        return None
    found = _SIZE.fullmatch(text)
    size = int(float(found[1]) * _UNITS.get(found[2].lower(), 0)) if found else 0
    if not size:
        raise ArgumentError(f"{ENV}={text} is not a size in memory; write {ENV}=4GiB, or a number of bytes")
    return size
