"""What a leaf of a tree is: a tensor, a model, an object that moves itself, or plain data.

Any other leaf is an error, because it may hold a tensor that would not be
moved. An object of an unknown class is searched. It is an error if there is a
tensor in it, or if it cannot be searched.
"""

import gc
import sys
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from copy import deepcopy
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.errors import NotATensorError, NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import (
    ATOMS,
    Ownership,
    owned_by,
    ownership_of,
    places_of,
    sometimes_data,
)
from xdevice.hardware.devices import as_device, is_device, native_of
from xdevice.tensors.trees.containers import Container, Node, attributes_of
from xdevice.tensors.trees.opening import RegisteredContainer, container_of, moves_itself

Leaf: TypeAlias = Any
"""An object in a tree that is not opened."""

Method: TypeAlias = Any
"""A bound method, of Python or of C."""

# Classes of plain data, which is not searched.
_DATA_CLASSES = (
    *(str, bytes, int, float, complex, bytearray, memoryview, range, type, Enum),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType),
    *(types.WrapperDescriptorType, types.MethodDescriptorType),
    *(types.ModuleType, types.GenericAlias, types.CodeType),
    *(type(None), type(Ellipsis), type(NotImplemented)),
)
_METHOD_CLASSES = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)

_HINT = (
    "take it out, give it a method to(device), register its class as a pytree, or name it in skip="
)
_MAX_SEARCHED_OBJECTS = 20_000
_HEAP_TYPE = 1 << 9  # CPython's Py_TPFLAGS_HEAPTYPE: the class is made in Python
_ESTIMATOR_METHODS = ("fit", "get_params", "set_params")  # scikit-learn's conventions
# An object with one of these holds numbers, of another library.
_ARRAY_PROTOCOLS = ("__dlpack__", "__array_interface__", "__cuda_array_interface__", "__array__")


class SelfMoving:
    """Stands for the owner of an object that has its own method ``to``, which moves it."""

    role = "object"


SELF_MOVING = SelfMoving()

LeafOwnership: TypeAlias = Ownership | SelfMoving
"""A tensor or a model, with its framework; or an object that moves itself."""


class TensorInside(NamedTuple):
    """A tensor or a model that was found in an object, and its path there."""

    path: str
    tensor: Tensor
    ownership: Ownership


def leaf_ownership(leaf: Leaf) -> LeafOwnership | None:
    """The framework that owns a leaf, and the leaf's role; ``None`` for plain data.

    `SELF_MOVING` for an object that moves itself. `NotATensorError` for any
    other object that may hold a tensor.
    """
    cls = type(leaf)
    if cls in ATOMS:
        return None
    ownership = ownership_of(cls)
    if ownership is not None:
        has_tensors = ownership.is_tensor or ownership.is_model
        if not has_tensors:
            return None  # a native device, or the framework's plain data
        return ownership
    if moves_itself(cls):
        return SELF_MOVING
    if isinstance(leaf, _METHOD_CLASSES):
        _check_method(leaf)
    elif not isinstance(leaf, _DATA_CLASSES):
        _check_data(leaf)
    return None


def is_checked_data(leaf: Leaf, ownership: LeafOwnership) -> bool:
    """Whether a tensor is plain data in a tree, after a check that no tensor is inside.

    Plain data are NumPy's scalars, and arrays of text and of objects.
    `NotATensorError` if an array of objects holds a tensor.
    """
    if not isinstance(ownership, Ownership) or not _is_data_tensor(leaf, ownership):
        return False
    _check_nothing_inside(leaf)
    return True


def devices_of_leaf(leaf: Leaf, ownership: LeafOwnership) -> set[Device]:
    """All devices of a tensor, model or self-moving object; empty if it holds no tensor."""
    if isinstance(ownership, Ownership):
        return places_of(leaf, ownership)
    # `.device` may be missing, raise an error, or be something else than a
    # device
    with suppress(Exception):
        if is_device(leaf.device):
            return {as_device(leaf.device)}
    devices: set[Device] = set()
    for inside in tensors_in(leaf):
        devices |= places_of(inside.tensor, inside.ownership)
    return devices


def move_with_own_method(leaf: Leaf, device: Device, copy: bool) -> Leaf:
    """Move an object with its own method ``to``; the object itself if that moves in place."""
    source = leaf
    if copy:
        if callable(getattr(leaf, "clone", None)):
            source = leaf.clone()
        else:
            source = deepcopy(leaf)
    target = native_of(framework_of(leaf, SELF_MOVING), device)
    try:
        moved = source.to(target)
    except TypeError as error:  # the method takes other arguments, or has another meaning
        try:
            moved = source.to(device=target)
        except TypeError:
            failure = f"{type(leaf).__name__}.to({target!r}) failed ({error})"
            raise NotSupportedError(f"{failure}; move its parts, or name it in skip=") from error
    if moved is None:  # the method moves in place
        return source
    return moved


def framework_of(leaf: Leaf, ownership: LeafOwnership) -> Backend:
    """The framework of a tensor or model.

    For an object that moves itself: the framework of its tensors, else the one
    of its device, else the chosen framework.
    """
    if isinstance(ownership, Ownership):
        return ownership.backend
    for inside in tensors_in(leaf):
        return inside.ownership.backend
    device_ownership = ownership_of(type(getattr(leaf, "device", None)))
    if device_ownership is None:
        return backend()
    return device_ownership.backend


def check_static_parts(container: Container, node: Node, skip: Collection[str] = ()) -> None:
    """Raise an error if a container's static parts hold a tensor, which would not be moved.

    Static parts are keys, a default factory, and what a registered class
    stores beside its parts.
    """
    for static_part in container.static_parts(node):
        for inside in tensors_in(static_part):
            if isinstance(container, RegisteredContainer):
                fields = _static_fields_with(inside.tensor, container, node)
                if not set(fields).isdisjoint(skip):
                    continue
                raise _static_tensor_error(node, inside.tensor, fields)
            location = "a key"
            if isinstance(node, defaultdict):
                location = "a key or the default_factory"
            raise _fixed_tensor_error(location, node)


def _static_fields_with(tensor: Tensor, container: Container, node: Node) -> list[str]:
    """The names of the attributes that are not parts of the node, and hold the tensor."""
    paths = container.paths(node)
    fields = []
    for name, value in attributes_of(node).items():
        if f".{name}" not in paths and any(inside.tensor is tensor for inside in tensors_in(value)):
            fields.append(name)
    return fields


def _static_tensor_error(node: Node, tensor: Tensor, fields: list[str]) -> NotATensorError:
    if not fields:
        return _fixed_tensor_error("the static part", node)
    return NotATensorError(
        f"{type(node).__name__}.{fields[0]} holds a tensor ({type(tensor).__name__}), but is "
        "registered as static, so it does not move; make it an ordinary field, or name it in skip="
    )


def _fixed_tensor_error(location: str, node: Node) -> NotATensorError:
    return NotATensorError(
        f"{location} of this {type(node).__name__} holds a tensor, and does not move; "
        "keep tensors in its values"
    )


def _check_data(leaf: Leaf) -> None:
    """Raise an error unless the object is plain data, as far as can be seen."""
    cls = type(leaf)
    description = f"an object of type {cls.__name__}"
    if any(base.__name__ == "NonCallableMock" for base in cls.__mro__):
        raise NotATensorError(
            f"{description} has every attribute that it is asked for, tensors too; {_HINT}"
        )
    if hasattr(cls, "__next__"):
        raise NotATensorError(f"{description} can be read only once; make it a list")
    _check_nothing_inside(leaf)
    if any(hasattr(cls, name) for name in _ARRAY_PROTOCOLS):
        raise NotATensorError(f"{description} holds an array that no framework here owns; {_HINT}")
    if not _can_be_searched(leaf):
        raise NotATensorError(f"{description} cannot be searched for tensors; {_HINT}")


def _check_method(method: Method) -> None:
    """Raise an error for a method of a tensor, a model, or an object that holds one.

    After a move the method would still use the old tensors.
    """
    try:
        inside = next(tensors_in(method.__self__), None)
    except NotATensorError:  # too much to search, as in a logger: treated as a function
        return
    if inside is None:
        return
    role = inside.ownership.role
    relation = f"is a {role}"
    if inside.path:
        attribute = inside.path.lstrip(".")
        relation = f"holds a {role} ({attribute}: {type(inside.tensor).__name__})"
    raise NotATensorError(
        f"{type(method.__self__).__name__}.{method.__name__} is a method of an object that "
        f"{relation}, and does not move; give the object, and take its method after the move; "
        "or name it in skip="
    )


def is_graph(cls: type) -> bool:
    """Whether objects of the class are graphs of tasks, such as dask's arrays."""
    return hasattr(cls, "__dask_graph__")


def graph_without_places(type_name: str) -> str:
    return (
        f"this {type_name} is a graph of tasks, whose blocks have no device before they are "
        "computed; pass x.compute(), or move each block with x.map_blocks(xdevice.to_device, device)"
    )


def _check_nothing_inside(leaf: Leaf) -> None:
    cls = type(leaf)
    if is_graph(cls):
        raise NotATensorError(graph_without_places(cls.__name__))
    for path, tensor, ownership in tensors_in(leaf):
        if ownership.backend == "numpy" and _is_estimator(cls):
            continue  # it computes on the host, wherever the other tensors are
        type_name = cls.__name__
        raise NotATensorError(
            f"{type_name}{path} is a {ownership.role} ({type(tensor).__name__}), and xdevice "
            f"cannot rebuild {type_name} objects; {_HINT}"
        )


def _is_estimator(cls: type) -> bool:
    return all(hasattr(cls, name) for name in _ESTIMATOR_METHODS)


def _can_be_searched(leaf: Leaf) -> bool:
    """Whether all that the object holds can be seen.

    That is so if its class is made in Python, or if it is made in C and holds
    nothing.
    """
    cls = type(leaf)
    with suppress(Exception):  # its class may raise other errors than AttributeError
        if callable(leaf) and (hasattr(leaf, "__name__") or hasattr(leaf, "__wrapped__")):
            return True  # a function made in C
    has_attributes = cls.__dictoffset__ != 0 or "__slots__" in vars(cls)
    if cls.__flags__ & _HEAP_TYPE and has_attributes:
        return True
    if cls.__module__ == "array":
        return True
    return _is_in_standard_library(cls) and not hasattr(cls, "__iter__")  # such as a lock, a slice


def tensors_in(root: object) -> Iterator[TensorInside]:
    """Every tensor and model that can be reached from an object.

    The search follows containers, attributes and weak references.
    """
    visited: set[int] = set()
    queue: deque[tuple[str, Leaf]] = deque([("", root)])
    while queue:
        if len(visited) > _MAX_SEARCHED_OBJECTS:
            raise NotATensorError(
                f"an object of type {type(root).__name__} has too much in it to be searched for "
                f"tensors; {_HINT}"
            )
        path, node = queue.popleft()
        if id(node) in visited or isinstance(node, _DATA_CLASSES):
            continue
        visited.add(id(node))
        ownership = _ownership_through_proxy(node)
        if ownership is None:
            queue.extend(_objects_in(node, path))
        elif _is_object_array(node):
            queue.extend((f"{path}.flat[{i}]", item) for i, item in enumerate(node.flat))
        elif not _is_data_tensor(node, ownership):
            yield TensorInside(path, node, ownership)


def _ownership_through_proxy(node: Leaf) -> Ownership | None:
    """The ownership of a tensor or model, or of a proxy for one."""
    ownership = owned_by(node)
    if ownership is not None or node.__class__ is type(node):
        return ownership
    proxied = ownership_of(node.__class__)
    if proxied is not None and (proxied.is_tensor or proxied.is_model):
        return proxied
    return None


def _is_object_array(node: Leaf) -> bool:
    has_objects = getattr(getattr(node, "dtype", None), "hasobject", False) is True
    return has_objects and hasattr(node, "flat")  # NumPy's arrays have it


def _is_data_tensor(node: Leaf, ownership: Ownership) -> bool:
    """Whether it is a tensor that is plain data in a tree.

    The adapter decides: NumPy's scalars, and arrays of text, dates and objects.
    """
    if not ownership.is_tensor or type(node) not in sometimes_data:
        return False
    return ownership.backend.data.is_data(node)


def _is_in_standard_library(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in sys.stdlib_module_names


def _objects_in(node: Leaf, path: str) -> list[tuple[str, Leaf]]:
    """The objects that an object of an unknown class refers to, with their paths."""
    if isinstance(node, weakref.ReferenceType):
        return [(f"{path}()", node())]
    if isinstance(node, types.FrameType):  # of a generator; without its globals
        return [(f"{path}.{name}", value) for name, value in node.f_locals.items()]
    container = container_of(node)
    if container is not None:
        parts = zip(container.paths(node), container.parts(node), strict=True)
        return [(path + part_path, part) for part_path, part in parts]
    objects = [(f"{path}.{name}", value) for name, value in attributes_of(node).items()]
    if isinstance(node, BaseException):
        objects += [(f"{path}.args[{i}]", argument) for i, argument in enumerate(node.args)]
    if _is_in_standard_library(type(node)) and not callable(node):
        # the garbage collector also knows what views and iterators refer to,
        # without reading them
        objects += [(path, referent) for referent in gc.get_referents(node)]
    if isinstance(node, (dict, list, tuple, set, frozenset)):  # of a class that moves itself
        items = node.values() if isinstance(node, dict) else node
        objects += [(f"{path}[{i}]", item) for i, item in enumerate(items)]
    return objects
