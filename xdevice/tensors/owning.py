"""``backend_of``: the framework that owns a tensor, a model, or the tensors of a tree."""

from typing import Any

from xdevice.errors import ArgumentTypeError, XDeviceError
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Ownership, owned_by


def backend_of(obj: Any) -> Backend:
    """The framework that owns a tensor, parameter or model, or the tensors of a tree.

    Beside tensors of another framework, what NumPy has that is plain data does not count.

    Raises
    ------
    NotATensorError
        No tensor in it, or an object that may hold one and cannot be opened.
    ArgumentTypeError
        Tensors of several frameworks: each is named with its path.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.backend_of(numpy.ones(3))
    'numpy'
    >>> xdevice.backend_of({"x": numpy.ones(3), "label": "one"})
    'numpy'
    """
    owned = owned_by(obj)
    if owned is not None:
        return owned.backend
    found = _frameworks_in(obj)
    if not found:
        from xdevice.tensors.trees.messages import not_a_tensor  # long: only when something is wrong

        raise not_a_tensor(obj)
    if len(found) > 1:
        raise several(found)
    return next(iter(found))


def several(found: dict[Backend, str]) -> ArgumentTypeError:
    """The error for tensors of several frameworks, with where one of each is."""
    listed = ", ".join(f"{owner} ({where})" for owner, where in found.items())
    return ArgumentTypeError(f"tensors of several frameworks: {listed}; bring them to one with convert")


def _frameworks_in(tree: Any) -> dict[Backend, str]:
    """Each framework with the path to one of its tensors; where there is none, those of the plain data."""
    from xdevice.tensors.trees.leaves import is_weak, owner_of_self_moving, what_is
    from xdevice.tensors.trees.messages import at_path
    from xdevice.tensors.trees.tree import flatten

    flat = flatten(tree)
    found: dict[Backend, str] = {}
    weak: dict[Backend, str] = {}
    for i, leaf in enumerate(flat.leaves):
        try:
            what = what_is(leaf)
            kinds = found if what is None or not is_weak(leaf, what) else weak
        except XDeviceError as error:
            raise at_path(error, flat.paths[i]) from error.__cause__
        if what is not None:
            owner = what.backend if isinstance(what, Ownership) else owner_of_self_moving(leaf)
            if owner not in kinds:
                kinds[owner] = f"at {flat.paths[i]}"
    return found or weak
