"""Names for a framework's own objects: their types differ from one framework to the next."""

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
"""A framework's object for a device: ``torch.device``, ``mxnet.Context``, a string, …"""

Model: TypeAlias = Any
"""What a framework keeps parameters in: ``torch.nn.Module``, ``paddle.nn.Layer``, …"""

Node: TypeAlias = Any
"""A container that is registered with a framework: a pytree node."""
