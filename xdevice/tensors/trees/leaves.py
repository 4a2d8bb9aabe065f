"""What a leaf of a tree is: a tensor, a model, an object that moves itself, or plain data; anything else is an error.

Nothing that might hold a tensor is passed over: an object of an unknown class is searched, and one in which
a tensor is found, or that cannot be searched, is named in an error.
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
from typing import Any

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
from xdevice.tensors.trees.containers import Container, attributes
from xdevice.tensors.trees.opening import RegisteredContainer, container_of, moves_itself

_DATA = (  # classes of plain data, which is not searched
    *(str, bytes, int, float, complex, bytearray, memoryview, range, type, Enum),
    *(
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
        types.MethodWrapperType,
        types.ModuleType,
    ),
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.GenericAlias, types.CodeType),
    *(type(None), type(Ellipsis), type(NotImplemented)),
)
_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
_HINT = (
    "take it out, give it a method to(device), register its class as a pytree, or name it in skip="
)
_MOST = 20_000  # objects that a search looks at
_MADE_IN_PYTHON = 1 << 9  # CPython's Py_TPFLAGS_HEAPTYPE
_ESTIMATOR = ("fit", "get_params", "set_params")  # scikit-learn's conventions
_ARRAYS = (
    "__dlpack__",
    "__array_interface__",
    "__cuda_array_interface__",
    "__array__",
)  # numbers of another library


class SelfMoving:
    """The ownership of an object with a method ``to`` of its own, by which it is moved."""

    role = "object"


SELF_MOVING = SelfMoving()


def what_is(leaf: Any) -> Ownership | SelfMoving | None:
    """What the leaf is: a tensor, a model, what moves itself, ``None`` for plain data; else an error."""
    cls = type(leaf)
    if cls in ATOMS:
        return None
    owned = ownership_of(cls)
    if owned is not None:
        return owned if owned.is_tensor or owned.is_model else None
    if moves_itself(cls):
        return SELF_MOVING
    if isinstance(leaf, _METHODS):
        _check_method(leaf)
    elif not isinstance(leaf, _DATA):
        _check_data(leaf)
    return None


def check_fixed(container: Container, node: Any, skip: Collection[str] = ()) -> None:
    """An error if there is a tensor in a container's keys, or in what a registered class keeps beside its parts."""
    kind = type(node).__name__
    for fixed in container.fixed(node):
        for _, tensor, _ in tensors_in(fixed):
            what = "a key or the default_factory" if isinstance(node, defaultdict) else "a key"
            if isinstance(container, RegisteredContainer):
                what, parts = "the static part", container.keys(node)
                static = [
                    (name, value)
                    for name, value in attributes(node).items()
                    if f".{name}" not in parts
                ]
                names = [
                    name
                    for name, value in static
                    if any(found is tensor for _, found, _ in tensors_in(value))
                ]
                if not set(names).isdisjoint(skip):
                    continue
                if names:
                    raise NotATensorError(
                        f"{kind}.{names[0]} holds a tensor ({type(tensor).__name__}), but is registered as static, so "
                        "it does not move; make it an ordinary field, or name it in skip="
                    )
            why = "holds a tensor, and does not move; keep tensors in its values"
            raise NotATensorError(f"{what} of this {kind} {why}")


def is_weak(leaf: Any, what: Ownership | SelfMoving) -> bool:
    """Whether the leaf is a tensor that is plain data beside others: a NumPy scalar, an array of text or objects."""
    if not isinstance(what, Ownership) or not is_text(leaf, what):
        return False
    _check_nothing_inside(leaf)
    return True


def places(leaf: Any, what: Ownership | SelfMoving) -> set[Device]:
    """All devices that a tensor, model or self-moving object is on; empty where there is no tensor in it."""
    if isinstance(what, Ownership):
        return places_of(leaf, what)
    with suppress(
        Exception
    ):  # no device, or an error, or a word of its own for something else: its tensors are asked
        if is_device(leaf.device):
            return {as_device(leaf.device)}
    return set().union(*(places_of(tensor, owned) for _, tensor, owned in tensors_in(leaf)))


def moved_by_itself(leaf: Any, device: Device, copy: bool) -> Any:
    """What the object's own ``to`` returns for the device; the object itself where it moves in place."""
    source = leaf
    if copy:
        source = leaf.clone() if callable(getattr(leaf, "clone", None)) else deepcopy(leaf)
    target = native_of(framework_of(leaf, SELF_MOVING), device)
    try:
        moved = source.to(target)
    except TypeError as error:  # a method of another meaning, or of other arguments
        try:
            moved = source.to(device=target)
        except TypeError:
            what = f"{type(leaf).__name__}.to({target!r}) failed ({error})"
            raise NotSupportedError(f"{what}; move its parts, or name it in skip=") from error
    return source if moved is None else moved


def framework_of(leaf: Any, what: Ownership | SelfMoving) -> Backend:
    """The framework of a tensor or model; of what moves itself its tensors', else its device's, or the chosen."""
    if isinstance(what, Ownership):
        return what.backend
    for _, _, owned in tensors_in(leaf):
        return owned.backend
    by_device = ownership_of(type(getattr(leaf, "device", None)))
    return by_device.backend if by_device is not None else backend()


def _check_data(leaf: Any) -> None:
    """An error unless the object is plain data, as far as can be seen."""
    cls = type(leaf)
    kind = f"an object of type {cls.__name__}"
    if any(base.__name__ == "NonCallableMock" for base in cls.__mro__):
        raise NotATensorError(
            f"{kind} has every attribute that it is asked for, tensors too; {_HINT}"
        )
    if hasattr(cls, "__next__"):
        raise NotATensorError(f"{kind} can be read only once; make it a list")
    _check_nothing_inside(leaf)
    if any(hasattr(cls, mark) for mark in _ARRAYS):
        raise NotATensorError(f"{kind} holds an array that no framework here owns; {_HINT}")
    if not _can_be_searched(leaf):
        raise NotATensorError(f"{kind} cannot be searched for tensors; {_HINT}")


def _check_method(method: Any) -> None:
    """An error for the method of a tensor, a model, or an object that holds one: it would go on using these."""
    found = None
    with suppress(
        NotATensorError
    ):  # too much to be searched, such as all that a logger knows: as a function
        found = next(tensors_in(method.__self__), None)
    if found is not None:
        path, tensor, owned = found
        holds = (
            f"holds a {owned.role} ({path.lstrip('.')}: {type(tensor).__name__})"
            if path
            else f"is a {owned.role}"
        )
        kind = f"{type(method.__self__).__name__}.{method.__name__}"
        hint = "give the object, and take its method after the move; or name it in skip="
        raise NotATensorError(
            f"{kind} is a method of an object that {holds}, and does not move; {hint}"
        )


def _check_nothing_inside(leaf: Any) -> None:
    kind = type(leaf).__name__
    for path, tensor, owned in tensors_in(leaf):
        if owned.backend == "numpy" and all(hasattr(type(leaf), name) for name in _ESTIMATOR):
            continue  # it computes on the host, wherever the other tensors are
        found = f"{kind}{path} is a {owned.role} ({type(tensor).__name__})"
        raise NotATensorError(f"{found}, and xdevice cannot rebuild {kind} objects; {_HINT}")


def _can_be_searched(leaf: Any) -> bool:
    """Whether all that the object holds can be seen: it is made in Python, or in C and holds nothing."""
    cls = type(leaf)
    with suppress(Exception):  # its class raises another error than AttributeError
        if callable(leaf) and (hasattr(leaf, "__name__") or hasattr(leaf, "__wrapped__")):
            return True  # a function made in C
    if bool(cls.__flags__ & _MADE_IN_PYTHON) and (cls.__dictoffset__ or "__slots__" in vars(cls)):
        return True
    return cls.__module__ == "array" or (
        is_pythons(cls) and not hasattr(cls, "__iter__")
    )  # such as a lock, a slice


def tensors_in(root: Any) -> Iterator[tuple[str, Any, Ownership]]:
    """Each tensor and model that can be reached through containers, attributes and weak references, with its path."""
    seen: set[int] = set()
    ahead: deque[tuple[str, Any]] = deque([("", root)])
    while ahead:
        if len(seen) > _MOST:
            kind = type(root).__name__
            raise NotATensorError(
                f"an object of type {kind} has too much in it to be searched for tensors; {_HINT}"
            )
        path, node = ahead.popleft()
        if id(node) in seen or isinstance(node, _DATA):
            continue
        seen.add(id(node))
        owned = owned_by(node)
        if owned is None and node.__class__ is not type(
            node
        ):  # a proxy, with the class of what it stands for
            claimed = ownership_of(node.__class__)
            owned = (
                claimed if claimed is not None and (claimed.is_tensor or claimed.is_model) else None
            )
        if owned is None:
            ahead.extend(_inside(node, path))
        elif getattr(getattr(node, "dtype", None), "hasobject", False) is True and hasattr(
            node, "flat"
        ):  # NumPy's
            ahead.extend((f"{path}.flat[{i}]", part) for i, part in enumerate(node.flat))
        elif not is_text(node, owned):
            yield path, node, owned


def is_text(node: Any, owned: Ownership) -> bool:
    """Whether it is a tensor that is plain data beside others: a scalar, text, dates."""
    return owned.is_tensor and type(node) in sometimes_data and owned.backend.data.is_data(node)


def is_pythons(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in sys.stdlib_module_names


def _inside(node: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(node, weakref.ReferenceType):
        return [(f"{path}()", node())]
    if isinstance(node, types.FrameType):  # of a generator; its globals are not in it
        return [(f"{path}.{name}", value) for name, value in node.f_locals.items()]
    container = container_of(node)
    if container is not None:
        return [
            (path + key, part)
            for key, part in zip(container.keys(node), container.parts(node), strict=True)
        ]
    found = [(f"{path}.{name}", value) for name, value in attributes(node).items()]
    if isinstance(node, BaseException):
        found += [(f"{path}.args[{i}]", part) for i, part in enumerate(node.args)]
    if is_pythons(type(node)) and not callable(node):  # views and iterators too, which are not read
        found += [(path, part) for part in gc.get_referents(node)]
    if isinstance(node, (dict, list, tuple, set, frozenset)):  # of a class that moves itself
        found += [
            (f"{path}[{i}]", part)
            for i, part in enumerate(node.values() if isinstance(node, dict) else node)
        ]
    return found
