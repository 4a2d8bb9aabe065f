"""`to_numpy` and `convert`: a tensor as a NumPy array, or as a tensor of another framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, overload

from xdevice.contract import NativeDtype, Tensor, Tree
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    CopyNeededError,
    DeviceNotFoundError,
    NotSupportedError,
    shortened,
)
from xdevice.framework import choosing
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Known, check_arrival
from xdevice.hardware.devices import as_device, require
from xdevice.tensors.arguments import dtype_name, plain_array
from xdevice.tensors.making import make
from xdevice.tensors.moving import to_device
from xdevice.tensors.placement import backend_of, device_of, owner_of
from xdevice.tensors.trees.leaves import Leaf, is_data, known_leaf
from xdevice.tensors.trees.questions import not_a_tensor
from xdevice.tensors.trees.tree import FlatTree, is_leaf
from xdevice.typing import DeviceLike

if TYPE_CHECKING:
    import numpy as np

__all__ = ["convert", "to_numpy"]

NOT_NUMPYS = ("bfloat", "float8")
"""The prefixes of dtypes that NumPy has only from other packages, if at all."""


def to_numpy(x: Tensor) -> np.ndarray[Any, Any]:
    """A NumPy array with the tensor's values: a writable copy on the host.

    The call waits for the device. Gradients are left behind.

    Raises
    ------
    NotATensorError
        ``x`` is not a tensor.
    UnknownPlacementError
        ``x`` has no values yet: symbolic in a graph, deleted, not initialised.
    NotSupportedError
        Its dtype does not exist in NumPy.

    Examples
    --------
    >>> import numpy, xdevice
    >>> x = numpy.ones(2)
    >>> y = xdevice.to_numpy(x)
    >>> y[0] = 5
    >>> x
    array([1., 1.])
    """
    return owner_of(x).exchange.to_numpy(x)


@overload
def convert(
    x: Tree, backend: str, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Any: ...
@overload
def convert(
    x: Tree, *, like: Tree, device: DeviceLike | None = None, copy: bool | None = None
) -> Any: ...
@overload
def convert(
    x: Tree,
    y: Tree,
    /,
    *others: Tree,
    like: Tree,
    device: DeviceLike | None = None,
    copy: bool | None = None,
) -> tuple[Any, ...]: ...
@overload
def convert(
    x: Tree,
    y: Tree,
    /,
    *others: Tree,
    backend: str,
    device: DeviceLike | None = None,
    copy: bool | None = None,
) -> tuple[Any, ...]: ...
def convert(
    x: Tree,
    *others: Any,
    backend: str | None = None,
    like: Tree = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
) -> Any:
    """A tensor, or a tree of tensors, converted to another framework; or several of them.

    ``convert(x, backend)`` converts one. ``convert(x, y, z, like=w)`` and
    ``convert(x, y, z, backend=name)`` convert several, and return a tuple;
    ``None`` among them stays.

    Gradients are left behind. A tensor of that framework is treated as by
    `to_device`. In a tree, plain data passes through, and a tensor that
    appears twice is converted once.

    Parameters
    ----------
    x, *others
        Tensors, or nested containers of tensors.
    backend
        The name of the framework, as for `use`.
    like
        In place of ``backend``: a tensor, or a tree, whose framework and device the results have.
    device
        The device of the result; by default that of ``like``, or without it the device of the same
        name as the tensor's own.
    copy
        ``True``: the result has memory of its own. ``False``: it shares the tensor's memory.
        ``None``: memory is shared if that is safe, on the CPU and through DLPack; a change of one
        of two writable tensors then changes the other.

    Raises
    ------
    DeviceNotFoundError
        The framework does not have the device.
    CopyNeededError
        ``copy=False``, and the memory cannot be shared: the tensor is on another device or has
        another layout, or only one of the two frameworks has writable tensors.
    NotSupportedError
        The framework lacks the dtype, or ``x`` is or holds a model.
    NotATensorError
        ``x`` is not a tensor or container, or holds an object that cannot be converted.
    ArgumentTypeError
        Neither ``backend`` nor ``like`` is given, or both are.
    UnknownBackendError, BackendNotInstalledError
        There is no such framework.

    Examples
    --------
    >>> import numpy, xdevice
    >>> x = numpy.ones(3)
    >>> xdevice.convert(x, "numpy") is x
    True
    >>> xdevice.convert({"x": x, "label": "three ones"}, "numpy", copy=True)
    {'x': array([1., 1., 1.]), 'label': 'three ones'}
    >>> xdevice.convert(x, None, [x], like=numpy.zeros(2))
    (array([1., 1., 1.]), None, [array([1., 1., 1.])])
    """
    if backend is None and like is None and len(others) == 1:
        (backend,), others = others, ()
    if (backend is None) == (like is None):
        raise ArgumentTypeError(
            "convert needs the name of a framework or like=, and not both; write "
            "convert(x, 'torch'), convert(x, y, like=z) or convert(x, y, backend='torch')"
        )
    if backend is None:
        owner = backend_of(like)
        if device is None:
            device = device_of(like)
    else:
        owner = choosing.backend(backend)
    if not others:
        return _converted_tree(x, owner, device, copy)
    trees = (x, *others)
    for tree in trees:
        if tree is not None and is_leaf(tree) and known_leaf(tree) is None:
            raise not_a_tensor(tree)
    return _converted_tree(trees, owner, device, copy)


def _converted_tree(x: Tree, owner: Backend, device: DeviceLike | None, copy: bool | None) -> Any:
    if copy is not None and not isinstance(copy, bool):
        raise ArgumentError(f"copy={shortened(copy)} is not True, False or None")
    conversion = _Conversion(owner, None if device is None else as_device(device), copy)
    if is_leaf(x) and known_leaf(x) is None:
        raise not_a_tensor(x)

    def converted(leaf: Leaf) -> Leaf:
        known = known_leaf(leaf)
        if known is None or (leaf is not x and is_data(leaf, known)):
            return leaf
        return conversion(leaf, known)

    return FlatTree(x).map(converted)


class _Source(NamedTuple):
    """A tensor to convert, its framework, and the NumPy name of its dtype."""

    tensor: Tensor
    framework: Backend
    dtype: str


class _Conversion:
    """One call of `convert`."""

    def __init__(self, owner: Backend, device: Device | None, copy: bool | None) -> None:
        self.owner = owner
        self.device = device
        self.copy = copy

    def __call__(self, tensor: Leaf, known: Known) -> Tensor:
        if known.backend is None or known.category == "model":
            raise NotSupportedError(
                f"a {type(tensor).__name__} is not a tensor, and only tensors go from one "
                "framework to another; convert its parameters"
            )
        device = device_of(tensor)
        target = device if self.device is None else self.device
        if known.backend == self.owner:
            return to_device(tensor, target, copy=self.copy)
        self._require(target, device)
        dtype = dtype_name(tensor.dtype, known.backend).removesuffix("_")  # bool_ under NumPy 1
        if self.owner == "numpy" and dtype.startswith(NOT_NUMPYS):
            return self._as_array(tensor)
        return self._converted(_Source(tensor, known.backend, dtype), device, target)

    def _require(self, target: Device, device: Device) -> None:
        """Check that the framework has the target device."""
        try:
            require(self.owner, target)
        except DeviceNotFoundError as error:
            if self.device is not None:
                raise
            missing = str(error).partition(";")[0]
            raise DeviceNotFoundError(
                f"{missing}; the tensor is on {device}: say where to, with device="
            ) from None

    def _as_array(self, tensor: Tensor) -> Tensor:
        """An array whose dtype is from another package than NumPy, which the framework installs."""
        if self.copy is False:
            raise CopyNeededError(
                f"copy=False, but an array of {tensor.dtype} shares no memory; leave copy out"
            )
        return to_numpy(tensor)

    def _converted(self, source: _Source, device: Device, target: Device) -> Tensor:
        native_dtype = self.owner.creation.dtype(source.dtype)
        if native_dtype is None:  # the framework might take it for another dtype of the same width
            raise NotSupportedError(
                f"{self.owner} has no {source.dtype}; convert the dtype first, under "
                f"{source.framework}"
            )
        if not self.copy and device is target and device.kind == "cpu":
            shared = self._shared(source, target)
            if shared is not None:
                return shared
        if self.copy is False:
            raise CopyNeededError(
                f"copy=False, but {self.owner} cannot share the memory of this {source.framework} "
                f"tensor on {device}; leave copy out"
            )
        try:
            return self._copied(source, native_dtype, target)
        except ArgumentError as error:  # a dtype that must be enabled first
            raise NotSupportedError(
                f"{self.owner} cannot have this {source.dtype} tensor: {error.__cause__ or error}"
            ) from error

    def _shared(self, source: _Source, target: Device) -> Tensor | None:
        """A tensor on the same memory; ``None`` if that is impossible or the dtype differs."""
        can_export = source.framework.has("exchange", "export")
        if not can_export or not self.owner.has("exchange", "adopt"):
            return None
        offer = source.framework.exchange.export(source.tensor)
        if offer is None:
            return None
        try:
            shared = self.owner.exchange.adopt(*offer)
        except Exception:  # frameworks raise various errors for memory that they cannot use
            return None
        if shared is None:
            return None
        source_dtype = dtype_name(source.tensor.dtype, source.framework)
        if dtype_name(shared.dtype, self.owner) != source_dtype:
            return None
        return check_arrival(shared, self.owner, target)

    def _copied(self, source: _Source, native_dtype: NativeDtype, target: Device) -> Tensor:
        if not source.dtype.startswith(NOT_NUMPYS):
            array = plain_array(source.framework.exchange.to_numpy(source.tensor))
            return make(self.owner, "tensor", native_dtype, target, array)
        bits = source.framework.storage.to_bits(source.tensor)
        shape = tuple(source.tensor.shape)
        copied = self.owner.storage.from_bits(bits, shape, native_dtype, target)
        return check_arrival(copied, self.owner, target)
