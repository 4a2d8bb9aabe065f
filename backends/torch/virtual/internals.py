"""torch's insides, named in one place: what a device written in Python needs is private in torch, and untyped."""

from __future__ import annotations

from typing import Any

import torch

core: Any = torch._C  # pyright: ignore[reportPrivateUsage]  # there is no public way to any of it
aten: Any = torch.ops.aten
library: Any = torch.library
storages: Any = torch.UntypedStorage

ON_CPU = core.DispatchKeySet(core.DispatchKey.CPU)
"""Where to send what only handles sizes and strides: the CPU's code for it never looks at the memory."""


def storage_of(tensor: torch.Tensor) -> Any:
    """What the tensor is in; its ``_cdata`` says which one it is."""
    return tensor.untyped_storage()
