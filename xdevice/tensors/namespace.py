"""``namespace``: the framework's arrays under the array API standard's names.

So that a loss, or a small network, is written once. The list is what a course uses; the standard has
more. Where a framework's own function has the standard's meaning, it is that function itself.
"""

from __future__ import annotations

from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    CopyNeededError,
    NotPortableWarning,
    NotSupportedError,
    did_you_mean,
)
from xdevice.framework.choosing import backend, using
from xdevice.framework.ownership import tensor_owner
from xdevice.tensors import creation
from xdevice.tensors.arguments import native_dtype
from xdevice.tensors.placement import device_of, owner_of, to_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from xdevice.framework.adapters import Backend

CONSTANTS = {"e": 2.718281828459045, "inf": float("inf"), "nan": float("nan"), "newaxis": None, "pi": 3.141592653589793}
DTYPES = ("bool", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
_COMPARISONS = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")
_FACTORIES = ("arange", "asarray", "empty", "eye", "full", "linspace", "ones", "zeros")
_LIKE = ("empty_like", "full_like", "ones_like", "zeros_like")

GROUPS: dict[str, tuple[str, ...]] = {
    "constants": tuple(CONSTANTS),
    "dtypes": (*DTYPES, "astype"),
    "creation": (*_FACTORIES, *_LIKE, "meshgrid", "tril", "triu"),
    "element-wise": (
        *("abs", "add", "ceil", "clip", "cos", "cosh", "divide", "exp", "expm1", "floor", "floor_divide", "log"),
        *("log10", "log1p", "log2", "logaddexp", "maximum", "minimum", "multiply", "negative", "pow", "reciprocal"),
        *("remainder", "round", "sign", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh"),
    ),
    "comparison and logic": (
        *(*_COMPARISONS, "isfinite", "isinf", "isnan"),
        *("logical_and", "logical_not", "logical_or", "logical_xor", "where"),
    ),
    "reductions": ("all", "any", "count_nonzero", "cumulative_sum", "max", "mean", "min", "prod", "std", "sum", "var"),
    "matrices": ("matmul", "matrix_transpose", "tensordot", "vecdot"),
    "shape": (
        *("broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat"),
        *("reshape", "roll", "squeeze", "stack", "tile", "unstack"),
    ),
    "indexing": ("take", "take_along_axis"),
    "sorting and searching": ("argmax", "argmin", "argsort", "nonzero", "searchsorted", "sort", "unique_values"),
}
"""What a namespace has, by what it is for."""

NAMES: tuple[str, ...] = tuple(name for group in GROUPS.values() for name in group)
"""Every name that means the same under every framework."""

_namespaces: dict[Backend, Namespace] = {}


def namespace(x: Any = None) -> Namespace:
    """The array API standard's functions for the framework of a tensor, or for the chosen one.

    ``NAMES`` lists them. Results are on the operands' device, and gradients flow through; what
    makes new tensors follows the `scope`, and takes ``device=`` and ``dtype=`` in any spelling. Any
    other name is the framework's own, and says so in a `NotPortableWarning`.

    >>> import numpy, xdevice
    >>> xp = xdevice.namespace(numpy.ones(3))
    >>> xp.concat([xp.zeros(1), xp.exp(xp.asarray([0.0]))])
    array([0., 1.])

    Raises
    ------
    NotATensorError
        ``x`` is no framework's tensor.
    NotSupportedError
        On using a name that the framework cannot have.
    AttributeError
        On using a name that neither the list nor the framework has.
    """
    owner = backend() if x is None else owner_of(x)
    try:
        return _namespaces[owner]
    except KeyError:
        return _namespaces.setdefault(owner, Namespace(owner))  # threads agree on one


class Namespace:
    """One framework's functions, each an attribute."""

    def __init__(self, owner: Backend) -> None:
        self._owner = owner
        own = owner.maths.namespace()
        made = {**CONSTANTS, **dict(_dtypes(owner)), **_Factories(owner).functions(own)}
        for name in NAMES:
            if name in made or name in own:
                setattr(self, name, made[name] if name in made else own[name])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{self!r} has no {name!r}")
        owner = self._owner
        if name in NAMES:
            raise NotSupportedError(f"{owner} has no {name}: {_why_not(owner, name)}")
        outside = owner.maths.module()
        try:
            found = getattr(outside, name)
        except AttributeError:
            raise AttributeError(
                f"{name!r} is neither in xdevice's list nor in {outside.__name__}; "
                f"{did_you_mean(name, NAMES, 'dir() of the namespace lists its names')}"
            ) from None
        from warnings import warn

        warn(
            f"{name} is {owner}'s own, and may mean something else under another framework; "
            f"dir() of the namespace lists the names that do not",
            NotPortableWarning,
            stacklevel=2,
        )
        setattr(self, name, found)  # so that it is said once
        return found

    def __dir__(self) -> list[str]:
        return [name for name in NAMES if name in vars(self)]

    def __repr__(self) -> str:
        return f"<xdevice.namespace of {self._owner}: {len(dir(self))} names of the array API standard>"

    def __reduce__(self) -> tuple[Callable[..., Namespace], tuple[Backend]]:
        return _of, (self._owner,)


class _Factories:
    """What makes new tensors, or takes a dtype by its name: the same under every framework."""

    def __init__(self, owner: Backend) -> None:
        self.owner = owner

    def functions(self, own: Any) -> dict[str, Any]:
        """Each by its name."""
        made = {name: self._following(getattr(creation, name)) for name in ("arange", "empty", "full", "ones", "zeros")}
        made |= {name: getattr(self, name) for name in ("asarray", "eye", "linspace")}
        made |= {name: self._converting(own[name]) for name in _LIKE if name in own}
        return made | {"astype": self._casting(own["astype"])}

    def asarray(self, obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
        """A tensor of the data: the same one where nothing has to change. Gradients flow through."""
        owner = tensor_owner(obj)
        if owner is None or (owner == "numpy" and self.owner != "numpy"):
            if copy is False:
                raise CopyNeededError(f"copy=False, but a {type(obj).__name__} has to be copied; leave copy out")
            with using(self.owner):
                return creation.tensor(obj, dtype=dtype, device=device)
        if owner != self.owner:
            raise ArgumentTypeError(
                f"a tensor of {owner} was given to {self.owner}; pass to_numpy(x), or use namespace(x)"
            )
        wanted = native_dtype(self.owner, dtype)
        if wanted is not None and wanted != obj.dtype:
            if copy is False:
                raise CopyNeededError(f"copy=False, but {obj.dtype} has to become {wanted}; leave copy out")
            obj, copy = namespace(obj).astype(obj, wanted), None
        if device is None and copy is None:
            return obj
        return to_device(obj, device_of(obj) if device is None else device, copy=copy)

    def eye(
        self, n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
    ) -> Any:
        """A matrix with ones on one diagonal, and zeros elsewhere."""
        import numpy as np

        return self._from_host(np.eye(n_rows, n_cols, k), dtype, device)

    def linspace(  # noqa: PLR0913  (they are the standard's)
        self, start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
    ) -> Any:
        """So many numbers at equal distances."""
        import numpy as np

        if num < 0:
            raise ArgumentError(f"linspace of {num!r} numbers; give 0 or more")
        return self._from_host(np.linspace(start, stop, num, endpoint=endpoint), dtype, device)

    def _from_host(self, array: Any, dtype: Any, device: Any) -> Any:
        with using(self.owner):
            default = self.owner.creation.zeros((0,), None, None).dtype if dtype is None else dtype
            return creation.tensor(array, dtype=default, device=device)

    def _following(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """The factory, for this framework and not the chosen one."""

        def made(*args: Any, **kwargs: Any) -> Any:
            with using(self.owner):
                return make(*args, **kwargs)

        return _named_as(made, make)

    def _converting(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """The framework's function of a tensor, with any spelling of a dtype or a device."""

        def made(x: Any, *args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
            found = make(x, *args, dtype=native_dtype(self.owner, dtype), **kwargs)
            return found if device is None else to_device(found, device)

        return _named_as(made, make)

    def _casting(self, cast: Callable[..., Any]) -> Callable[..., Any]:
        def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
            found = cast(x, native_dtype(self.owner, dtype), copy=copy)
            return found if device is None else to_device(found, device)

        return _named_as(astype, cast)


def _named_as(made: Callable[..., Any], like: Callable[..., Any]) -> Callable[..., Any]:
    made.__name__, made.__doc__ = like.__name__, like.__doc__
    return made


def _dtypes(owner: Backend) -> Iterator[tuple[str, Any]]:
    for name in DTYPES:
        found = owner.creation.dtype(name)
        if found is not None:
            yield name, found


def _why_not(owner: Backend, name: str) -> str:
    return "it has no such dtype; take a wider one" if name in DTYPES else owner.maths.why_not(name)  # type: ignore[attr-defined]  # a Capability


def _of(owner: Backend) -> Namespace:
    with using(owner):
        return namespace()
