"""Out of the framework: to NumPy, on the host, or to another framework."""

from __future__ import annotations

from typing import Any

from xdevice.device import Device
from xdevice.errors import ArgumentError, CopyNeededError, DeviceNotFoundError, NotSupportedError
from xdevice.framework import choosing
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Ownership, check_arrival
from xdevice.hardware.devices import as_device, require
from xdevice.tensors.arguments import dtype_name, plain_array
from xdevice.tensors.creation import make
from xdevice.tensors.placement import device_of, owner_of, to_device
from xdevice.tensors.trees.leaves import SelfMoving, is_weak, what_is
from xdevice.tensors.trees.tree import flatten, not_a_tensor
from xdevice.typing import DeviceLike

TYPE_CHECKING = False
if TYPE_CHECKING:
    import numpy as np

__all__ = ["convert", "to_numpy"]

NOT_NUMPYS = (
    "bfloat",
    "float8",
)  # how the names of dtypes begin that NumPy has from other packages, if at all


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """A NumPy array with the tensor's values: a writable copy on the host.

    Waits for the device, and leaves gradients behind.

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


def convert(
    x: Any, backend: str, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Any:
    """A tensor, or a tree of tensors, converted to another framework.

    Gradients stay behind. A tensor of that framework is treated as by `to_device`. In a tree, plain data passes
    through, and a tensor that appears twice is converted once.

    Parameters
    ----------
    x
        A tensor, or nested containers of tensors.
    backend
        The name of the framework, as for `use`.
    device
        Where the result is to be; without it, the device of the same name as the tensor's own.
    copy
        ``True``: always in memory of its own; ``False``: never; ``None``: memory is shared where that is safe,
        on the CPU and through DLPack, so that writing to one of two writable tensors is seen in the other.

    Raises
    ------
    DeviceNotFoundError
        The framework does not have the device.
    CopyNeededError
        ``copy=False``, and the memory cannot be shared: on another device, of another layout, or because only
        one of the two frameworks allows a tensor to be written.
    NotSupportedError
        The framework lacks the dtype, or ``x`` is or holds a model.
    NotATensorError
        ``x`` is not a tensor or container, or holds an object that cannot be converted.
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
    """
    owner = choosing.backend(backend)
    if copy is not None and not isinstance(copy, bool):
        raise ArgumentError(f"copy={copy!r} is not True, False or None")
    conversion = _Conversion(owner, None if device is None else as_device(device), copy)
    flat = flatten(x)
    if flat.is_leaf and what_is(x) is None:
        raise not_a_tensor(x)
    made: dict[int, Any] = {}

    def converted(_: int, leaf: Any) -> Any:
        what = what_is(leaf)
        if what is None or (not flat.is_leaf and is_weak(leaf, what)):
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = conversion(leaf, what)
        return made[id(leaf)]

    return flat.rebuild(flat.each(converted))


class _Conversion:
    def __init__(self, owner: Backend, device: Device | None, copy: bool | None) -> None:
        self.owner, self.device, self.copy = owner, device, copy

    def __call__(self, tensor: Any, what: Ownership | SelfMoving) -> Any:
        if not isinstance(what, Ownership) or what.is_model:
            what_not = f"a {type(tensor).__name__} is not a tensor, and only tensors go from one framework to another"
            raise NotSupportedError(f"{what_not}; convert its parameters")
        source = what.backend
        here = device_of(tensor)
        there = here if self.device is None else self.device
        if source == self.owner:
            return to_device(tensor, there, copy=self.copy)
        try:
            require(self.owner, there)
        except DeviceNotFoundError as error:
            if self.device is not None:
                raise
            missing = str(error).partition(";")[0]
            raise DeviceNotFoundError(
                f"{missing}; the tensor is on {here}: say where to, with device="
            ) from None
        dtype = dtype_name(tensor.dtype, source).removesuffix("_")  # bool_ under NumPy 1
        if self.owner == "numpy" and dtype.startswith(NOT_NUMPYS):
            return self._as_array(tensor)
        native = self.owner.creation.dtype(dtype)
        if native is None:  # or a framework might take it for another dtype of as many bits
            raise NotSupportedError(
                f"{self.owner} has no {dtype}; convert the dtype first, under {source}"
            )
        if not self.copy and here is there and here.kind == "cpu":
            shared = self._shared(tensor, source, there)
            if shared is not None:
                return shared
        if self.copy is False:
            why_not = f"{self.owner} cannot share the memory of this {source} tensor on {here}"
            raise CopyNeededError(f"copy=False, but {why_not}; leave copy out")
        try:
            return self._copied(tensor, source, dtype, native, there)
        except ArgumentError as error:  # a dtype that must be enabled first
            why = error.__cause__ or error
            raise NotSupportedError(
                f"{self.owner} cannot have this {dtype} tensor: {why}"
            ) from error

    def _as_array(self, tensor: Any) -> Any:
        """An array of a dtype that NumPy has from another package, where the tensor's framework brings that."""
        if self.copy is False:
            raise CopyNeededError(
                f"copy=False, but an array of {tensor.dtype} shares no memory; leave copy out"
            )
        return to_numpy(tensor)

    def _shared(self, tensor: Any, source: Backend, where: Device) -> Any:
        """The tensor on the same memory; ``None`` if that cannot be, or would not be the same numbers."""
        if not (source.open("sharing").has("export") and self.owner.open("sharing").has("adopt")):
            return None
        offer = source.sharing.export(tensor)
        if offer is None:
            return None
        try:
            made = self.owner.sharing.adopt(*offer)
        except (
            Exception
        ):  # each framework refuses in its own way what it cannot take; a copy serves
            return None
        same = made is not None and dtype_name(made.dtype, self.owner) == dtype_name(
            tensor.dtype, source
        )
        return check_arrival(made, self.owner, where) if same else None

    def _copied(self, tensor: Any, source: Backend, dtype: str, native: Any, where: Device) -> Any:
        if not dtype.startswith(NOT_NUMPYS):
            return make(
                self.owner, "tensor", native, where, plain_array(source.exchange.to_numpy(tensor))
            )
        bits, shape = source.storage.to_bits(tensor), tuple(tensor.shape)
        return check_arrival(
            self.owner.storage.from_bits(bits, shape, native, where), self.owner, where
        )
