"""``__array_namespace_info__``: what a namespace tells of itself."""

from collections.abc import Mapping
from typing import Any

from xdevice.device import Device
from xdevice.errors import ArgumentError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.hardware.devices import devices
from xdevice.tensors.array_api.factories import Factories
from xdevice.tensors.array_api.names import DTYPE_NAMES, DTYPES
from xdevice.tensors.placement import device_of
from xdevice.typing import DeviceLike


class Info:
    """The standard's inspection functions, for one framework. Its devices are xdevice's."""

    def __init__(self, owner: Backend, factories: Factories, own: Mapping[str, Any]) -> None:
        self._owner, self._factories, self._own = owner, factories, own

    def capabilities(self) -> dict[str, Any]:
        """Results may have shapes that depend on the data; ``None``: the number of axes has no known limit."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Device:
        """Where new tensors go without ``device=``: the innermost `scope`, else the framework's own default."""
        return device_of(self._factories.asarray([0.0]))

    def default_dtypes(self, *, device: DeviceLike | None = None) -> dict[str, Any]:
        """The dtypes of new tensors without ``dtype=``."""
        made = {"real floating": [1.0], "complex floating": [1j], "integral": [1]}
        if self._owner.creation.dtype("complex64") is None:
            del made["complex floating"]
        found = {kind: self._factories.asarray(data, device=device).dtype for kind, data in made.items()}
        if "argmax" in self._own:
            found["indexing"] = self._own["argmax"](self._factories.asarray([1], device=device)).dtype
        return found

    def dtypes(self, *, device: DeviceLike | None = None, kind: Any = None) -> dict[str, Any]:
        """The framework's dtypes of a kind, or of every kind, by their names."""
        found = {name: self._owner.creation.dtype(name) for name in _names(kind)}
        return {name: dtype for name, dtype in found.items() if dtype is not None and self._is_enabled(dtype)}

    def _is_enabled(self, dtype: Any) -> bool:
        """Whether a tensor can have the dtype now: JAX has those of 64 bits only where they are enabled."""
        try:
            self._owner.creation.empty((0,), dtype, None)
        except ValueError:
            return False
        return True

    def devices(self) -> tuple[Device, ...]:
        """The devices that the framework can use."""
        with using(self._owner):
            return tuple(devices())


def _names(kind: Any) -> tuple[str, ...]:
    if kind is None:
        return DTYPE_NAMES
    if isinstance(kind, tuple):
        return tuple(name for name in DTYPE_NAMES if any(name in _names(each) for each in kind))
    integral = DTYPES["signed integer"] + DTYPES["unsigned integer"]
    numeric = integral + DTYPES["real floating"] + DTYPES["complex floating"]
    kinds = DTYPES | {"integral": integral, "numeric": numeric}
    if kind not in kinds:
        raise ArgumentError(f"{kind!r} is not a kind of dtypes; give one of {', '.join(map(repr, kinds))}")
    return kinds[kind]
