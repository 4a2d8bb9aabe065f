"""``backend_of``: the framework that owns a tensor, a model, or the tensors of a tree."""

from typing import Any

from xdevice.errors import ArgumentTypeError
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import owned_by, tensor_owner


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
    from xdevice.tensors.trees.tree import frameworks_in  # many programs never need it

    return one_of({owner: f"at {path}" for owner, path in frameworks_in(obj).items()})


def one_of(found: dict[Backend, str]) -> Backend:
    """The one framework that tensors are of; an error that says where one of each is, if they are of several."""
    if len(found) > 1:
        listed = ", ".join(f"{owner} ({where})" for owner, where in found.items())
        raise ArgumentTypeError(f"tensors of several frameworks: {listed}; bring them to one with convert")
    return next(iter(found))


def owner_of(obj: Any) -> Backend:
    """The framework that owns this tensor; `NotATensorError` if none does."""
    owner = tensor_owner(obj)
    if owner is None:
        from xdevice.tensors.trees.tree import not_a_tensor  # long: only when something is wrong

        raise not_a_tensor(obj)
    return owner
