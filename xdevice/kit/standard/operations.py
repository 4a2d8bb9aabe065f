"""The operations of a framework from which functions of the standard are composed."""

from collections.abc import Callable, Mapping
from typing import Any

from xdevice.kit.standard.promotion import Dtypes


class Operations:
    """A framework's operations and dtypes, for the classes that compose functions of them.

    ``raw``: the framework's operations; ``f``: the functions that only need a dtype or an axis adjusted.
    """

    def __init__(
        self, raw: Mapping[str, Any], f: Mapping[str, Any], dtypes: Dtypes, promote: Callable[..., list[Any]]
    ) -> None:
        self._raw, self._f, self._dtypes, self._promote = raw, f, dtypes, promote

    def _kept(self, x: Any, name: str | None) -> Any:
        """The tensor, converted back to that dtype if an operation changed it."""
        return x if self._dtypes.dtype_name(x) == name else self._dtypes.cast(x, name)
