"""Names for objects whose types only a framework or a program knows."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

__all__ = [
    "Block",
    "Function",
    "Model",
    "NativeDevice",
    "NativeDtype",
    "Node",
    "Tensor",
    "Tree",
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

Tree: TypeAlias = Any
"""A tensor, a model, or containers of them: a list, a dict, a dataclass, …"""

Function: TypeAlias = Callable[..., Any]
"""A function of the program or of a framework."""

Block: TypeAlias = AbstractContextManager[Any]
"""A context manager, for a ``with`` block."""
