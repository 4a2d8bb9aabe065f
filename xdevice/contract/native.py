"""Names for a framework's own objects.

Their types differ from one framework to the next, so each name is ``Any``.
"""

from typing import Any, TypeAlias

__all__ = [
    "Model",
    "NativeDevice",
    "NativeDtype",
    "Node",
    "Tensor",
    "Vector",
]

Tensor: TypeAlias = Any
"""A tensor of one framework."""

Vector: TypeAlias = Any
"""A tensor with one axis."""

NativeDtype: TypeAlias = Any
"""A framework's dtype; as an argument, ``None`` is the framework's default."""

NativeDevice: TypeAlias = Any
"""A framework's device: ``torch.device``, ``mxnet.Context``, a string, …"""

Model: TypeAlias = Any
"""An object with parameters: ``torch.nn.Module``, ``paddle.nn.Layer``, …"""

Node: TypeAlias = Any
"""A container that is registered with a framework: a pytree node."""
