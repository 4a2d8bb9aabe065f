"""Bytes and seconds as text, and text as bytes."""

import math
import re

_PREFIXES = "kmgt"
_UNITS = {"": 1, "b": 1}
for _power, _prefix in enumerate(_PREFIXES, 1):
    _UNITS[f"{_prefix}b"] = 1000**_power
    _UNITS[f"{_prefix}ib"] = 1024**_power
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parsed_size(text: str) -> int:
    """The bytes of ``4GiB``, ``512 MiB`` or ``1000``.

    0 if the text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return 0
    number, unit = match.groups()
    return int(float(number) * _UNITS.get(unit.lower(), 0))


def known(count: float | None) -> int | None:
    """The count; ``None`` for ``nan``, in whose place programs can format a number."""
    return None if count is None or math.isnan(count) else int(count)


def size(count: int | None) -> str:
    """Bytes for people: ``310 MiB``."""
    if count is None:
        return "?"
    number = float(count)
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        units.pop(0)
    unit = units[0]
    if number >= 100 or unit in ("B", "KiB"):
        return f"{number:.0f} {unit}"
    return f"{number:.1f} {unit}"


def duration(seconds: float) -> str:
    """Seconds for people: ``1.84 s``, ``2 min 05 s``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, remaining_seconds = divmod(round(seconds), 60)
    return f"{minutes} min {remaining_seconds:02d} s"
