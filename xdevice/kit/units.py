"""Bytes and seconds, for people and from them."""

import re

_MORE = {
    f"{p}{unit}": base**i
    for unit, base in (("ib", 1024), ("b", 1000))
    for i, p in enumerate("kmgt", 1)
}
_UNITS = {"": 1, "b": 1, **_MORE}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parsed_size(text: str) -> int:
    """The bytes of ``4GiB``, ``512 MiB`` or ``1000``.

    0 where the text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return 0
    return int(float(match[1]) * _UNITS.get(match[2].lower(), 0))


def size(count: int | None) -> str:
    """Bytes for people: ``310 MiB``."""
    if count is None:
        return "?"
    number, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number, units = number / 1024, units[1:]
    is_rounded = number >= 100 or units[0] in ("B", "KiB")
    return f"{number:.0f} {units[0]}" if is_rounded else f"{number:.1f} {units[0]}"


def duration(seconds: float) -> str:
    """Seconds for people: ``1.84 s``, ``2 min 05 s``."""
    if seconds < 99.95:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"
