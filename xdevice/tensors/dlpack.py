"""``from_dlpack``: a tensor of another library, in the memory that it has."""

from __future__ import annotations

from xdevice.errors import ArgumentError, ArgumentTypeError, CopyNeededError
from xdevice.framework.choosing import using
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.devices import as_device
from xdevice.tensors import creation
from xdevice.tensors.exchange import to_numpy
from xdevice.tensors.placement import device_of, to_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from xdevice.framework.adapters import Backend


def imported(owner: Backend, share: Callable[[Any], Any], x: Any, device: Any, copy: bool | None) -> Any:
    """The framework's tensor of the numbers of ``x``, which belongs to another library.

    ``copy=None`` shares memory only where both tensors can be written to, or neither: a write through one
    would otherwise change numbers that their framework takes for constant.
    """
    known = tensor_owner(x) is not None
    if not known and not hasattr(x, "__dlpack__"):
        raise ArgumentTypeError(f"from_dlpack of a {type(x).__name__}, which has no __dlpack__; asarray takes numbers")
    with using(owner):
        where = as_device(device) if device is not None else device_of(x) if known else None
        if known and 0 in x.shape:  # no memory to share; some frameworks fail with such tensors
            return creation.tensor(to_numpy(x), device=where)
        try:
            found = share(x)
        except BufferError as error:  # its library refuses, and says why
            raise ArgumentError(f"the {type(x).__name__} cannot be shared: {error}") from error
        except Exception as error:  # each framework has its own errors for what it cannot share
            if copy is False or not known:
                raise CopyNeededError(
                    f"{owner} cannot share the memory of a {type(x).__name__}; leave copy out"
                ) from error
            return creation.tensor(to_numpy(x), device=where)
        here = device_of(found)
        if copy is False and not (_share(x, found) and where in (None, here)):
            raise CopyNeededError(f"copy=False, but {owner} has to copy the {type(x).__name__}; leave copy out")
        copied = copy is not False and (copy or not _equally_writable(x, found))
        return to_device(found, where or here, copy=copied or None)


def _view(x: Any) -> Any:
    """A NumPy array in the tensor's memory, or ``None`` where there is no such array."""
    import numpy as np

    try:
        return np.from_dlpack(x)
    except Exception:  # not on the host, or of a dtype that NumPy lacks
        return None


def _share(x: Any, found: Any) -> bool:
    """Whether two tensors are in the same memory, as far as that can be seen."""
    import numpy as np

    views = _view(x), _view(found)
    return any(view is None or not view.size for view in views) or np.shares_memory(*views)


def _equally_writable(x: Any, found: Any) -> bool:
    views = _view(x), _view(found)
    if any(view is None for view in views):
        return False
    return bool(views[0].flags.writeable == views[1].flags.writeable)
