"""The functions of a namespace that make new tensors, with the array API standard's signatures.

They follow the `scope`, and take a dtype and a device in any spelling, the same under every
framework. ``from_dlpack`` takes a tensor of another library, in the memory that it has.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from xdevice.errors import ArgumentError, ArgumentTypeError, CopyNeededError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.devices import as_device
from xdevice.hardware.scopes import innermost
from xdevice.tensors import creation
from xdevice.tensors.arguments import check_fit, native_dtype, number_for, shape_of
from xdevice.tensors.creation import Shape, make, place
from xdevice.tensors.exchange import to_numpy
from xdevice.tensors.namespace_numbers import Numbers
from xdevice.tensors.placement import device_of, to_device

FACTORIES = (
    "arange",
    "asarray",
    "empty",
    "eye",
    "from_dlpack",
    "full",
    "linspace",
    "ones",
    "zeros",
)
LIKE = ("empty_like", "full_like", "ones_like", "zeros_like")
FFT_FACTORIES = ("fftfreq", "rfftfreq")
_OF_SHAPE = ("empty", "ones", "zeros")
_SMALL = 2**20  # three such sizes together are not too many numbers for any framework
_WRONG = (
    TypeError,
    ValueError,
    OverflowError,
    RuntimeError,
)  # what frameworks raise for arguments that they refuse


class Factories:
    def __init__(self, owner: Backend, own: Mapping[str, Any], numbers: Numbers) -> None:
        self._owner, self._own, self._numbers = owner, own, numbers
        self._dtypes: dict[Any, Any] = {None: None}  # the native dtype of each that was asked for

    def functions(self) -> dict[str, Callable[..., Any]]:
        has = self._owner.open("creation").has
        made = {
            name: getattr(self, name)
            for name in (*FACTORIES, "astype", "full_like")
            if name not in _OF_SHAPE
        }
        made |= {name: self._of_shape(name) for name in _OF_SHAPE if has(name)}
        return made | {
            name: self._like(self._own[name])
            for name in LIKE
            if name != "full_like" and name in self._own
        }

    def extra(self, extension: str) -> dict[str, Callable[..., Any]]:
        return (
            {name: self._frequencies(name) for name in FFT_FACTORIES} if extension == "fft" else {}
        )

    def arange(
        self,
        start: Any,
        /,
        stop: Any = None,
        step: Any = 1,
        *,
        dtype: Any = None,
        device: Any = None,
    ) -> Any:
        """The numbers from ``start`` up to but without ``stop``; one number alone is ``stop``."""
        if device is dtype is None and type(start) is type(step) is int and innermost() is None:
            low, high = (0, start) if stop is None else (start, stop)
            if type(high) is int and step > 0 and -_SMALL < low < high < _SMALL:
                return self._owner.creation.arange(low, high, step, None, None)
        with using(self._owner):
            return creation.arange(start, stop, step, dtype=dtype, device=device)

    def full(self, shape: Shape, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
        """A tensor of that shape, of one number."""
        if (
            device is dtype is None
            and type(fill_value) in (float, bool)
            and _is_plain(shape)
            and innermost() is None
        ):
            sizes: Any = shape if type(shape) is tuple else (shape,)
            return self._owner.creation.full(sizes, fill_value, None, None)
        if dtype is None and isinstance(fill_value, complex):
            dtype = self.asarray(
                fill_value
            ).dtype  # some frameworks fill with numbers of twice that size
        with using(self._owner):
            return creation.full(shape, fill_value, dtype=dtype, device=device)

    def asarray(
        self, obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
    ) -> Any:
        """A tensor of the data: the same one where nothing has to change. Gradients flow through."""
        owner = tensor_owner(obj)
        if owner is None or (owner == "numpy" and self._owner != "numpy"):
            if copy is False:
                raise CopyNeededError(
                    f"copy=False, but a {type(obj).__name__} has to be copied; leave copy out"
                )
            # of a float, or a list of floats, no check can find anything wrong
            is_flat = type(obj) is float or (type(obj) is list and set(map(type, obj)) == {float})
            if device is dtype is None and is_flat and innermost() is None:
                try:
                    return self._owner.creation.tensor(obj, None, None)
                except _WRONG:
                    pass  # the error is explained below
            with using(self._owner):
                return creation.tensor(obj, dtype=dtype, device=device)
        if owner != self._owner:
            raise ArgumentTypeError(
                f"a tensor of {owner} was given to {self._owner}; pass to_numpy(x), or use namespace(x)"
            )
        wanted = self._dtype(dtype)
        if wanted is not None and wanted != obj.dtype:
            if copy is False:
                raise CopyNeededError(
                    f"copy=False, but {obj.dtype} has to become {wanted}; leave copy out"
                )
            obj, copy = self._own["astype"](obj, wanted), None
        if device is None and copy is None:
            return obj
        return to_device(obj, device_of(obj) if device is None else device, copy=copy)

    def eye(
        self,
        n_rows: int,
        n_cols: int | None = None,
        /,
        *,
        k: int = 0,
        dtype: Any = None,
        device: Any = None,
    ) -> Any:
        """A matrix of zeros, with ones on one diagonal."""
        if device is None and "eye" in self._own and innermost() is None:
            return self._own["eye"](n_rows, n_cols, k=k, dtype=self._dtype(dtype))
        import numpy as np

        return self._from_host(np.eye(n_rows, n_cols, k), dtype, device)

    def linspace(  # noqa: PLR0913  (the standard's arguments)
        self,
        start: Any,
        stop: Any,
        /,
        num: int,
        *,
        dtype: Any = None,
        device: Any = None,
        endpoint: bool = True,
    ) -> Any:
        """Numbers at equal distances."""
        import numpy as np

        if num < 0:
            raise ArgumentError(f"linspace of {num!r} numbers; give 0 or more")
        own, wanted = self._own.get("linspace"), self._dtype(dtype)
        if (
            own is not None
            and (wanted is None or "float" in str(wanted))
            and not isinstance(start + stop, complex)
        ):
            found, where = (
                own(start, stop, num, dtype=wanted, endpoint=endpoint),
                place(self._owner, device),
            )
            return found if where is None else make(self._owner, "tensor", None, where, found)
        array = np.linspace(start, stop, num, endpoint=endpoint)
        return self._from_host(
            array, "complex64" if dtype is None and array.dtype.kind == "c" else dtype, device
        )

    def from_dlpack(self, x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
        """The numbers of another library's tensor, without a copy where that is safe; ``copy=False`` insists."""
        if tensor_owner(x) == self._owner:
            return self.asarray(x, device=device, copy=copy)
        return _imported(self._owner, self._own["from_dlpack"], x, device, copy)

    def full_like(
        self, x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None
    ) -> Any:
        """A tensor of one number, of the shape, dtype and device of another tensor."""
        wanted = self._dtype(dtype)
        made_of = x.dtype if wanted is None else wanted
        filling = self._numbers.filling(fill_value, made_of)
        if filling is None:
            filling = self._checked(fill_value, made_of)
        found = self._own["full_like"](x, filling, dtype=wanted)
        return found if device is None else to_device(found, device)

    def _checked(self, fill_value: Any, dtype: Any) -> Any:
        """What `full_like` fills a tensor of that dtype with."""
        try:
            check_fit("full", (fill_value,), dtype, self._owner)
            return number_for(dtype, fill_value, self._owner)
        except (TypeError, OverflowError) as error:
            raise ArgumentError(
                f"full_like(x, {shortened(fill_value)}) cannot be made: {error}"
            ) from None

    def astype(self, x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
        """The tensor in another dtype. Gradients flow through."""
        try:
            wanted = self._dtypes[dtype]
        except (KeyError, TypeError):
            wanted = self._dtype(dtype)
        if copy or wanted != x.dtype:
            x = self._own["astype"](x, wanted, copy=copy)
        return x if device is None else to_device(x, device)

    def _of_shape(self, name: str) -> Callable[..., Any]:
        native, dtypes = getattr(self._owner.creation, name), self._dtypes

        def made(shape: Shape, *, dtype: Any = None, device: Any = None) -> Any:
            if device is None and innermost() is None and _is_plain(shape):
                try:  # the most frequent call, without what the others need
                    return native(shape if type(shape) is tuple else (shape,), dtypes[dtype], None)
                except (KeyError, *_WRONG):
                    pass  # a dtype seen for the first time; or an error, which is explained below
            with using(self._owner):
                self._dtype(dtype)
                return make(
                    self._owner, name, dtype, place(self._owner, device), shape_of((shape,))
                )

        made.__name__ = made.__qualname__ = name
        made.__doc__ = f"A tensor of that shape: see `xdevice.{name}`."
        return made

    def _like(self, produce: Callable[..., Any]) -> Callable[..., Any]:
        """The framework's function of a tensor, with a dtype and a device in any spelling."""

        @wraps(produce, assigned=("__name__", "__doc__"), updated=())
        def made(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
            found = produce(x, dtype=self._dtype(dtype))
            return found if device is None else to_device(found, device)

        del made.__wrapped__  # the signature is the one of `made`
        return made

    def _dtype(self, dtype: Any) -> Any:
        try:
            return self._dtypes[dtype]
        except (KeyError, TypeError):
            found = native_dtype(self._owner, dtype)
        if type(dtype) is not int and type(dtype).__hash__ is not None:
            self._dtypes[dtype] = found
        return found

    def _frequencies(self, name: str) -> Callable[..., Any]:
        def made(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
            import numpy as np

            if n < 1:
                raise ArgumentError(f"the frequencies of {n!r} samples; give 1 or more")
            return self._from_host(getattr(np.fft, name)(n, d), dtype, device)

        made.__name__ = made.__qualname__ = name
        made.__doc__ = f"The frequencies of `{name.removesuffix('freq')}` of ``n`` samples that are ``d`` apart."
        return made

    def _from_host(self, array: Any, dtype: Any, device: Any) -> Any:
        with using(self._owner):
            default = self._owner.creation.zeros((0,), None, None).dtype if dtype is None else dtype
            return creation.tensor(array, dtype=default, device=device)


def _is_plain(shape: Any) -> bool:
    """Whether the shape is an integer, or a tuple of up to three, none of them negative or large."""
    if type(shape) is not tuple:
        return type(shape) is int and 0 <= shape < _SMALL
    for size in shape:
        if type(size) is not int or not 0 <= size < _SMALL:
            return False
    return len(shape) <= 3


def _imported(
    owner: Backend, share: Callable[[Any], Any], x: Any, device: Any, copy: bool | None
) -> Any:
    """The framework's tensor of the numbers of ``x``, which belongs to another library.

    ``copy=None`` shares memory only where both tensors can be written to, or neither: a write
    through one would otherwise change numbers that their framework takes for constant.
    """
    import numpy as np

    source = tensor_owner(x)
    if source is None and not hasattr(x, "__dlpack__"):
        raise ArgumentTypeError(
            f"from_dlpack of a {type(x).__name__}, which has no __dlpack__; asarray takes numbers"
        )
    with using(owner):
        where = (
            as_device(device) if device is not None else None if source is None else device_of(x)
        )
        found = None if copy else _shared(share, x, source, copy)
        views = [] if found is None else _views(x, found)
        if copy is False:
            is_same = not views or not all(view.size for view in views) or np.shares_memory(*views)
            if not is_same or where not in (None, device_of(found)):
                raise CopyNeededError(
                    f"copy=False, but {owner} has to copy the {type(x).__name__}; leave copy out"
                )
        kinds = {(view.flags.writeable, view.dtype) for view in views}
        if found is None or (copy is None and len(kinds) != 1):
            numbers = np.array(np.from_dlpack(x)) if source is None else to_numpy(x)
            return creation.tensor(
                numbers, device=where
            )  # at once: a framework's own copy may come later
        return found if where is None else to_device(found, where)


def _shared(share: Callable[[Any], Any], x: Any, source: Backend | None, copy: bool | None) -> Any:
    """The framework's tensor in the memory of another one; ``None`` where it is to be copied instead."""
    try:
        return share(x)
    except Exception as error:  # each framework has its own errors for what it cannot share
        what = str(error).partition("\n")[0]
        if copy is False:
            raise CopyNeededError(
                f"copy=False, but the {type(x).__name__} cannot be shared: {what}"
            ) from error
        if (
            isinstance(error, BufferError) and source != "numpy"
        ):  # the tensor's own library refuses, and says why
            raise ArgumentError(f"the {type(x).__name__} cannot be shared: {what}") from error
        return None


def _views(x: Any, found: Any) -> list[Any]:
    """NumPy arrays in the tensors' memory; none where that is not on the host, or of a dtype that NumPy lacks."""
    import numpy as np

    try:
        return [np.from_dlpack(x), np.from_dlpack(found)]
    except Exception:  # of each framework's own
        return []
