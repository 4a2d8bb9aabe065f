"""The functions of a namespace that make new tensors, with the array API standard's signatures.

They follow the `scope`, and take a dtype and a device in any spelling, under
every framework. ``from_dlpack`` takes a tensor of another library, whose
memory it shares.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeAlias

from xdevice.contract import NativeDtype, Tensor
from xdevice.errors import ArgumentError, ArgumentTypeError, CopyNeededError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.devices import as_device
from xdevice.hardware.scopes import innermost
from xdevice.hardware.traced import TracedDevice
from xdevice.tensors import creation
from xdevice.tensors.arguments import native_dtype, number_for, shape_of
from xdevice.tensors.creation import Shape
from xdevice.tensors.exchange import to_numpy
from xdevice.tensors.making import make, place
from xdevice.tensors.moving import to_device
from xdevice.tensors.namespace_numbers import Numbers
from xdevice.tensors.placement import device_of
from xdevice.typing import DeviceLike

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
_SMALL = 2**20  # every framework can make a tensor with three such sizes
# what frameworks raise for arguments that they refuse
_FRAMEWORK_ERRORS = (TypeError, ValueError, OverflowError, RuntimeError)

Function: TypeAlias = Callable[..., Any]

Number: TypeAlias = Any
"""A number, or a tensor with one number."""

TensorLike: TypeAlias = Any
"""A tensor, or numbers in nested sequences."""

DTypeLike: TypeAlias = Any
"""A dtype in any spelling, or ``None``."""

NumpyArray: TypeAlias = Any


class Factories:
    """The factories of one framework's namespace."""

    def __init__(self, owner: Backend, native: Mapping[str, Any], numbers: Numbers) -> None:
        self._owner = owner
        self._native = native  # the framework's functions
        self._numbers = numbers
        # by each spelling that was used; apart by class, since dtypes of different frameworks
        # can have equal hashes, and comparing those may warn
        self._dtypes: defaultdict[type, dict[DTypeLike, NativeDtype]] = defaultdict(dict)
        self._dtypes[type(None)][None] = None

    def functions(self) -> dict[str, Function]:
        creation_functions = self._owner.load("creation")
        functions: dict[str, Function] = {
            "astype": self.astype,
            "full_like": self.full_like,
        }
        for name in FACTORIES:
            if name not in _OF_SHAPE:
                functions[name] = getattr(self, name)
            elif creation_functions.has(name):
                functions[name] = self._of_shape(name)
        for name in LIKE:
            if name in self._native and name != "full_like":
                functions[name] = self._like(self._native[name])
        return functions

    def extra(self, extension: str) -> dict[str, Function]:
        """The factories of an extension of the namespace."""
        if extension != "fft":
            return {}
        return {name: self._frequencies(name) for name in FFT_FACTORIES}

    def arange(
        self,
        start: Number,
        /,
        stop: Number = None,
        step: Number = 1,
        *,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """The numbers from ``start`` to ``stop``, without ``stop``; a single number is ``stop``."""
        if device is dtype is None and type(start) is type(step) is int and innermost() is None:
            low, high = start, stop
            if stop is None:
                low, high = 0, start
            if type(high) is int and step > 0 and -_SMALL < low < high < _SMALL:
                return self._owner.creation.arange(low, high, step, None, None)
        with using(self._owner):
            return creation.arange(start, stop, step, dtype=dtype, device=device)

    def full(
        self,
        shape: Shape,
        fill_value: Number,
        *,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """A tensor of that shape, filled with one number."""
        is_simple = device is dtype is None and type(fill_value) in (float, bool)
        if is_simple and _is_plain(shape) and innermost() is None:
            sizes: Any = shape if type(shape) is tuple else (shape,)
            return self._owner.creation.full(sizes, fill_value, None, None)
        if dtype is None and isinstance(fill_value, complex):
            # some frameworks fill with numbers of twice that size
            dtype = self.asarray(fill_value).dtype
        with using(self._owner):
            return creation.full(shape, fill_value, dtype=dtype, device=device)

    def asarray(
        self,
        obj: TensorLike,
        /,
        *,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
        copy: bool | None = None,
    ) -> Tensor:
        """A tensor of the data: the same one if nothing has to change. Gradients flow through."""
        owner = tensor_owner(obj)
        if owner is None or (owner == "numpy" and self._owner != "numpy"):
            if copy is False:
                raise CopyNeededError(
                    f"copy=False, but a {type(obj).__name__} has to be copied; leave copy out"
                )
            # a float, or a list of floats, needs no checks
            is_flat = type(obj) is float or (type(obj) is list and set(map(type, obj)) == {float})
            if device is dtype is None and is_flat and innermost() is None:
                try:
                    return self._owner.creation.tensor(obj, None, None)
                except _FRAMEWORK_ERRORS:
                    pass  # the error is explained below
            with using(self._owner):
                return creation.tensor(obj, dtype=dtype, device=device)
        if owner != self._owner:
            cure = "pass to_numpy(x), or use namespace(x)"
            raise ArgumentTypeError(f"a tensor of {owner} was given to {self._owner}; {cure}")
        new_dtype = self._dtype(dtype)
        if new_dtype is not None and new_dtype != obj.dtype:
            if copy is False:
                raise CopyNeededError(
                    f"copy=False, but {obj.dtype} has to become {new_dtype}; leave copy out"
                )
            obj = self._native["astype"](obj, new_dtype)
            copy = None  # it is one
        if device is None and copy is None:
            return obj
        if device is None:
            device = device_of(obj)
            if isinstance(device, TracedDevice):
                return obj  # in a compiled function, which changes no tensor
        return to_device(obj, device, copy=copy)

    def eye(
        self,
        n_rows: int,
        n_cols: int | None = None,
        /,
        *,
        k: int = 0,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """A matrix of zeros, with ones on one diagonal."""
        if device is None and "eye" in self._native and innermost() is None:
            return self._native["eye"](n_rows, n_cols, k=k, dtype=self._dtype(dtype))
        import numpy as np

        return self._from_host(np.eye(n_rows, n_cols, k), dtype, device)

    def linspace(  # noqa: PLR0913  (the standard's arguments)
        self,
        start: Number,
        stop: Number,
        /,
        num: int,
        *,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
        endpoint: bool = True,
    ) -> Tensor:
        """Numbers at equal distances."""
        import numpy as np

        if num < 0:
            raise ArgumentError(f"linspace of {num!r} numbers; give 0 or more")
        native_linspace = self._native.get("linspace")
        new_dtype = self._dtype(dtype)
        is_real = not isinstance(start + stop, complex)
        is_floating = new_dtype is None or "float" in str(new_dtype)
        if native_linspace is not None and is_real and is_floating:
            tensor = native_linspace(start, stop, num, dtype=new_dtype, endpoint=endpoint)
            destination = place(self._owner, device)
            if destination is None:
                return tensor
            return make(self._owner, "tensor", None, destination, tensor)
        array = np.linspace(start, stop, num, endpoint=endpoint)
        if dtype is None and array.dtype.kind == "c":
            dtype = "complex64"
        return self._from_host(array, dtype, device)

    def from_dlpack(
        self, x: Tensor, /, *, device: DeviceLike | None = None, copy: bool | None = None
    ) -> Tensor:
        """A tensor of another library's numbers, without a copy if that is safe.

        With ``copy=False``, it is an error if a copy is needed.
        """
        if tensor_owner(x) == self._owner:
            return self.asarray(x, device=device, copy=copy)
        return _imported(self._owner, self._native["from_dlpack"], x, device, copy)

    def full_like(
        self,
        x: Tensor,
        /,
        fill_value: Number,
        *,
        dtype: DTypeLike = None,
        device: DeviceLike | None = None,
    ) -> Tensor:
        """A tensor filled with one number, with the shape, dtype and device of another tensor."""
        new_dtype = self._dtype(dtype)
        result_dtype = new_dtype
        if new_dtype is None:
            result_dtype = x.dtype
        number = self._numbers.filling(fill_value, result_dtype)
        if number is None:
            number = self._checked(fill_value, result_dtype)
        result = self._native["full_like"](x, number, dtype=new_dtype)
        if device is None:
            return result
        return to_device(result, device)

    def _checked(self, fill_value: Number, dtype: NativeDtype) -> Number:
        """The number with which `full_like` fills a tensor of that dtype."""
        try:
            return number_for(dtype, fill_value, self._owner)
        except (TypeError, OverflowError) as error:
            raise ArgumentError(
                f"full_like(x, {shortened(fill_value)}) cannot be made: {error}"
            ) from None

    def astype(
        self, x: Tensor, dtype: DTypeLike, /, *, copy: bool = True, device: DeviceLike | None = None
    ) -> Tensor:
        """The tensor in another dtype. Gradients flow through."""
        try:
            new_dtype = self._dtypes[type(dtype)][dtype]
        except (KeyError, TypeError):
            new_dtype = self._dtype(dtype)
        if copy or new_dtype != x.dtype:
            x = self._native["astype"](x, new_dtype, copy=copy)
        if device is None:
            return x
        return to_device(x, device)

    def _of_shape(self, name: str) -> Function:
        native = getattr(self._owner.creation, name)
        dtypes = self._dtypes

        def factory(
            shape: Shape, *, dtype: DTypeLike = None, device: DeviceLike | None = None
        ) -> Tensor:
            # the most frequent call, without the checks that others need
            if device is None and innermost() is None and _is_plain(shape):
                try:
                    sizes = shape if type(shape) is tuple else (shape,)
                    return native(sizes, dtypes[type(dtype)][dtype], None)
                except (KeyError, *_FRAMEWORK_ERRORS):
                    pass  # a dtype that is used for the first time; or an error, explained below
            with using(self._owner):
                self._dtype(dtype)
                destination = place(self._owner, device)
                return make(self._owner, name, dtype, destination, shape_of((shape,)))

        factory.__name__ = factory.__qualname__ = name
        factory.__doc__ = f"A tensor of that shape: see `xdevice.{name}`."
        return factory

    def _like(self, produce: Function) -> Function:
        """The framework's function of a tensor, with a dtype and a device in any spelling."""

        @wraps(produce, assigned=("__name__", "__doc__"), updated=())
        def factory(
            x: Tensor, /, *, dtype: DTypeLike = None, device: DeviceLike | None = None
        ) -> Tensor:
            result = produce(x, dtype=self._dtype(dtype))
            if device is None:
                return result
            return to_device(result, device)

        del factory.__wrapped__  # the signature is that of `factory`
        return factory

    def _dtype(self, dtype: DTypeLike) -> NativeDtype:
        """The framework's dtype for any spelling of one; ``None`` for none."""
        try:
            return self._dtypes[type(dtype)][dtype]
        except (KeyError, TypeError):
            native = native_dtype(self._owner, dtype)
        if type(dtype) is not int and type(dtype).__hash__ is not None:
            self._dtypes[type(dtype)][dtype] = native
        return native

    def _frequencies(self, name: str) -> Function:
        def factory(
            n: int, /, *, d: float = 1.0, dtype: DTypeLike = None, device: DeviceLike | None = None
        ) -> Tensor:
            import numpy as np

            if n < 1:
                raise ArgumentError(f"the frequencies of {n!r} samples; give 1 or more")
            return self._from_host(getattr(np.fft, name)(n, d), dtype, device)

        transform = name.removesuffix("freq")
        factory.__name__ = factory.__qualname__ = name
        factory.__doc__ = f"The frequencies of `{transform}` of ``n`` samples that are ``d`` apart."
        return factory

    def _from_host(self, array: NumpyArray, dtype: DTypeLike, device: DeviceLike | None) -> Tensor:
        with using(self._owner):
            if dtype is None:  # the framework's default, and not NumPy's
                dtype = self._owner.creation.zeros((0,), None, None).dtype
            return creation.tensor(array, dtype=dtype, device=device)


def _is_plain(shape: object) -> bool:
    """Whether the shape is a small integer of 0 or more, or a tuple of up to three of them."""
    if type(shape) is not tuple:
        return type(shape) is int and 0 <= shape < _SMALL
    for size in shape:
        if type(size) is not int or not 0 <= size < _SMALL:
            return False
    return len(shape) <= 3


def _imported(
    owner: Backend, share: Function, x: Tensor, device: DeviceLike | None, copy: bool | None
) -> Tensor:
    """The framework's tensor of the numbers of ``x``, which belongs to another library.

    ``copy=None`` shares memory only if both tensors can be written to, or
    neither. Otherwise a write to one would change the other, whose framework
    takes it for constant.
    """
    import numpy as np

    source = tensor_owner(x)
    if source is None and not hasattr(x, "__dlpack__"):
        raise ArgumentTypeError(
            f"from_dlpack of a {type(x).__name__}, which has no __dlpack__; asarray takes numbers"
        )
    with using(owner):
        destination = None
        if device is not None:
            destination = as_device(device)
        elif source is not None:
            destination = device_of(x)
        tensor = None
        views: list[NumpyArray] = []
        if not copy:
            tensor = _shared(share, x, source, copy)
        if tensor is not None:
            views = _views(x, tensor)
        if copy is False:
            is_empty = any(not view.size for view in views)
            is_shared = not views or is_empty or np.shares_memory(*views)
            if not is_shared or destination not in (None, device_of(tensor)):
                raise CopyNeededError(
                    f"copy=False, but {owner} has to copy the {type(x).__name__}; leave copy out"
                )
        differ = len({(view.flags.writeable, view.dtype) for view in views}) != 1
        if tensor is None or (copy is None and differ):
            # copied by NumPy, at once: a framework's own copy may be made
            # later
            numbers = to_numpy(x) if source is not None else np.array(np.from_dlpack(x))
            return creation.tensor(numbers, device=destination)
        if destination is None:
            return tensor
        return to_device(tensor, destination)


def _shared(share: Function, x: Tensor, source: Backend | None, copy: bool | None) -> Tensor:
    """The framework's tensor in the memory of another one; ``None`` if it has to be copied."""
    try:
        return share(x)
    except Exception as error:  # each framework has its own errors for what it cannot share
        reason = str(error).partition("\n")[0]
        if copy is False:
            raise CopyNeededError(
                f"copy=False, but the {type(x).__name__} cannot be shared: {reason}"
            ) from error
        # the tensor's own library refuses, and says why
        if isinstance(error, BufferError) and source != "numpy":
            raise ArgumentError(f"the {type(x).__name__} cannot be shared: {reason}") from error
        return None


def _views(x: Tensor, tensor: Tensor) -> list[NumpyArray]:
    """NumPy arrays in the memory of both tensors.

    Empty if the memory is not on the host, or NumPy lacks the dtype.
    """
    import numpy as np

    try:
        return [np.from_dlpack(x), np.from_dlpack(tensor)]
    except Exception:  # of each framework's own
        return []
