"""Out of the framework: to NumPy, on the host."""

from __future__ import annotations

from xdevice.tensors.owning import owner_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy as np


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """A NumPy array with the tensor's values: on the host, yours to write, sharing nothing.

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
