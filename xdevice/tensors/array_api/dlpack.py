"""``from_dlpack``: a tensor of another library, in the memory that it has."""

from collections.abc import Callable
from typing import Any

from xdevice.errors import ArgumentError, ArgumentTypeError, CopyNeededError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.devices import as_device
from xdevice.tensors import creation
from xdevice.tensors.exchange import to_numpy
from xdevice.tensors.placement import device_of, to_device


def imported(owner: Backend, share: Callable[[Any], Any], x: Any, device: Any, copy: bool | None) -> Any:
    """The framework's tensor of the numbers of ``x``, which belongs to another library.

    ``copy=None`` shares memory only where both tensors can be written to, or neither: a write through one
    would otherwise change numbers that their framework takes for constant.
    """
    source = tensor_owner(x)
    if source is None and not hasattr(x, "__dlpack__"):
        raise ArgumentTypeError(f"from_dlpack of a {type(x).__name__}, which has no __dlpack__; asarray takes numbers")
    with using(owner):
        where = as_device(device) if device is not None else None if source is None else device_of(x)
        found = None if copy else _shared(share, x, source, copy)
        if copy is False and not (_same_memory(x, found) and where in (None, device_of(found))):
            raise CopyNeededError(f"copy=False, but {owner} has to copy the {type(x).__name__}; leave copy out")
        if found is None or (copy is None and not _alike(x, found)):
            return creation.tensor(_numbers(x, source), device=where)  # at once: a framework's own copy may come later
        return found if where is None else to_device(found, where)


def _shared(share: Callable[[Any], Any], x: Any, source: Backend | None, copy: bool | None) -> Any:
    """The framework's tensor in the memory of another one; ``None`` where it is to be copied instead."""
    try:
        return share(x)
    except Exception as error:  # each framework has its own errors for what it cannot share
        what = str(error).partition("\n")[0]
        if copy is False:
            raise CopyNeededError(f"copy=False, but the {type(x).__name__} cannot be shared: {what}") from error
        if isinstance(error, BufferError) and source != "numpy":  # the tensor's own library refuses, and says why
            raise ArgumentError(f"the {type(x).__name__} cannot be shared: {what}") from error
        return None


def _numbers(x: Any, source: Backend | None) -> Any:
    import numpy as np

    return to_numpy(x) if source is not None else np.array(np.from_dlpack(x))


def _view(x: Any) -> Any:
    """A NumPy array in the tensor's memory, or ``None`` where there is no such array."""
    import numpy as np

    try:
        return np.from_dlpack(x)
    except Exception:  # not on the host, or of a dtype that NumPy lacks
        return None


def _same_memory(x: Any, found: Any) -> bool:
    """Whether two tensors are in the same memory, as far as that can be seen."""
    import numpy as np

    views = _view(x), _view(found)
    return any(view is None or not view.size for view in views) or np.shares_memory(*views)


def _alike(x: Any, found: Any) -> bool:
    """Whether both tensors may be written to, or neither, and have one dtype."""
    views = _view(x), _view(found)
    if any(view is None for view in views):
        return False
    return bool(views[0].flags.writeable == views[1].flags.writeable and views[0].dtype == views[1].dtype)
