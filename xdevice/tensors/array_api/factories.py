"""The functions of a namespace that make new tensors, with the array API standard's signatures.

They follow the `scope`, and take a dtype and a device in any spelling, the same under every framework.
"""

from __future__ import annotations

from functools import wraps

from xdevice.errors import ArgumentError, ArgumentTypeError, CopyNeededError
from xdevice.framework.choosing import using
from xdevice.framework.ownership import tensor_owner
from xdevice.tensors import creation
from xdevice.tensors.arguments import native_dtype
from xdevice.tensors.array_api.dlpack import imported
from xdevice.tensors.array_api.names import FACTORIES, FFT_FACTORIES, LIKE
from xdevice.tensors.placement import device_of, to_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from xdevice.framework.adapters import Backend
    from xdevice.tensors.creation import Shape


class Factories:
    """One framework's factories."""

    def __init__(self, owner: Backend, own: Mapping[str, Any]) -> None:
        self._owner, self._own = owner, own

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Each by its name."""
        made = {name: getattr(self, name) for name in (*FACTORIES, "astype", "full_like")}
        return made | {name: self._like(self._own[name]) for name in LIKE if name != "full_like" and name in self._own}

    def extra(self, extension: str) -> dict[str, Callable[..., Any]]:
        """Those of an extension, each by its name."""
        return {name: getattr(self, name) for name in FFT_FACTORIES} if extension == "fft" else {}

    def arange(self, start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
        """The numbers from ``start`` up to but without ``stop``; one number alone is ``stop``."""
        with using(self._owner):
            return creation.arange(start, stop, step, dtype=dtype, device=device)

    def empty(self, shape: Shape, *, dtype: Any = None, device: Any = None) -> Any:
        """A tensor of that shape, of any numbers."""
        with using(self._owner):
            return creation.empty(shape, dtype=dtype, device=device)

    def zeros(self, shape: Shape, *, dtype: Any = None, device: Any = None) -> Any:
        """A tensor of that shape, of zeros."""
        with using(self._owner):
            return creation.zeros(shape, dtype=dtype, device=device)

    def ones(self, shape: Shape, *, dtype: Any = None, device: Any = None) -> Any:
        """A tensor of that shape, of ones."""
        with using(self._owner):
            return creation.ones(shape, dtype=dtype, device=device)

    def full(self, shape: Shape, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
        """A tensor of that shape, of one number."""
        if dtype is None and isinstance(fill_value, complex):
            dtype = self.asarray(fill_value).dtype  # some frameworks fill with numbers of twice that size
        with using(self._owner):
            return creation.full(shape, fill_value, dtype=dtype, device=device)

    def asarray(self, obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
        """A tensor of the data: the same one where nothing has to change. Gradients flow through."""
        owner = tensor_owner(obj)
        if owner is None or (owner == "numpy" and self._owner != "numpy"):
            if copy is False:
                raise CopyNeededError(f"copy=False, but a {type(obj).__name__} has to be copied; leave copy out")
            with using(self._owner):
                return creation.tensor(obj, dtype=dtype, device=device)
        if owner != self._owner:
            raise ArgumentTypeError(
                f"a tensor of {owner} was given to {self._owner}; pass to_numpy(x), or use namespace(x)"
            )
        wanted = native_dtype(self._owner, dtype)
        if wanted is not None and wanted != obj.dtype:
            if copy is False:
                raise CopyNeededError(f"copy=False, but {obj.dtype} has to become {wanted}; leave copy out")
            obj, copy = self._own["astype"](obj, wanted), None
        if device is None and copy is None:
            return obj
        return to_device(obj, device_of(obj) if device is None else device, copy=copy)

    def eye(
        self, n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
    ) -> Any:
        """A matrix of zeros, with ones on one diagonal."""
        import numpy as np

        return self._from_host(np.eye(n_rows, n_cols, k), dtype, device)

    def linspace(  # noqa: PLR0913  (the standard's arguments)
        self, start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
    ) -> Any:
        """Numbers at equal distances."""
        import numpy as np

        if num < 0:
            raise ArgumentError(f"linspace of {num!r} numbers; give 0 or more")
        array = np.linspace(start, stop, num, endpoint=endpoint)
        return self._from_host(array, "complex64" if dtype is None and array.dtype.kind == "c" else dtype, device)

    def from_dlpack(self, x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
        """The numbers of another library's tensor, without a copy where that is safe; ``copy=False`` insists."""
        if tensor_owner(x) == self._owner:
            return self.asarray(x, device=device, copy=copy)
        return imported(self._owner, self._own["from_dlpack"], x, device, copy)

    def fftfreq(self, n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
        """The frequencies of `fft` of ``n`` samples that are ``d`` apart."""
        import numpy as np

        return self._from_host(np.fft.fftfreq(_samples(n), d), dtype, device)

    def rfftfreq(self, n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
        """The frequencies of `rfft` of ``n`` samples that are ``d`` apart."""
        import numpy as np

        return self._from_host(np.fft.rfftfreq(_samples(n), d), dtype, device)

    def full_like(self, x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
        """A tensor of one number, of the shape, dtype and device of another tensor."""
        found = self._own["full_like"](x, fill_value, dtype=native_dtype(self._owner, dtype))
        return found if device is None else to_device(found, device)

    def astype(self, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
        """The tensor in another dtype. Gradients flow through."""
        found = self._own["astype"](x, native_dtype(self._owner, dtype), copy=copy)
        return found if device is None else to_device(found, device)

    def _like(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """The framework's function of a tensor, with a dtype and a device in any spelling."""

        @wraps(make, assigned=("__name__", "__doc__"), updated=())
        def made(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
            found = make(x, dtype=native_dtype(self._owner, dtype))
            return found if device is None else to_device(found, device)

        del made.__wrapped__  # the signature is the one of `made`
        return made

    def _from_host(self, array: Any, dtype: Any, device: Any) -> Any:
        with using(self._owner):
            default = self._owner.creation.zeros((0,), None, None).dtype if dtype is None else dtype
            return creation.tensor(array, dtype=default, device=device)


def _samples(n: int) -> int:
    if n < 1:
        raise ArgumentError(f"the frequencies of {n!r} samples; give 1 or more")
    return n
