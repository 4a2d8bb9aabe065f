"""Private, untyped parts of torch that a device written in Python needs, named in one place."""

from __future__ import annotations

from typing import Any

import torch

own: Any = torch
core: Any = torch._C  # pyright: ignore[reportPrivateUsage]  # it has no public counterpart
aten: Any = torch.ops.aten
library: Any = torch.library
storages: Any = torch.UntypedStorage

ON_CPU = core.DispatchKeySet(core.DispatchKey.CPU)
"""Dispatches operations on sizes and strides to the CPU's kernels, which do not read the memory."""


def storage_of(tensor: torch.Tensor) -> Any:
    """The tensor's storage, identified by its ``_cdata``."""
    return tensor.untyped_storage()
