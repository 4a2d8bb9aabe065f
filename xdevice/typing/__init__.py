"""Types for the signatures of your own functions.

Examples
--------
>>> from xdevice.typing import DeviceLike, Namespace, Tensor
>>> def softplus(x: Tensor, xp: Namespace, device: DeviceLike = "cpu") -> object: ...
"""

from xdevice.typing.array_api import Namespace
from xdevice.typing.devices import DeviceLike
from xdevice.typing.tensors import Tensor

__all__ = ["DeviceLike", "Namespace", "Tensor"]
