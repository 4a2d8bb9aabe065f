"""Storages made by themselves, as pickle and torch.load make them: torch refuses, crashes, or forgets the index."""

from __future__ import annotations

from typing import Any

import torch

from xdevice.backends.torch.virtual import devices
from xdevice.backends.torch.virtual.internals import storages


def replace() -> None:
    """Replace the functions of `torch.UntypedStorage` that make and resize storages."""
    make, resize = storages.__new__, storages.resize_

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or torch.device(device).type != devices.name:
            return make(cls, *args, **kwargs)
        content = args[0] if args else kwargs.get("size", 0)
        fill = torch.empty if isinstance(content, int) else torch.tensor  # how many bytes, or which
        return fill(content, dtype=torch.uint8, device=device).untyped_storage()

    def new_like(self: Any) -> Any:
        return storages(0, device=self.device)

    def resize_(self: Any, size: int) -> Any:
        return resize(self, size) if self.device.type != devices.name else _resized(self, size)

    storages.__new__, storages.new, storages.resize_ = new, new_like, resize_


def _resized(storage: Any, size: int) -> Any:
    if devices.plug_in is not None:
        devices.plug_in.resize(storage, size)
    elif size != storage.nbytes():
        raise NotImplementedError(
            f"torch resizes storages of devices written in C++ only, and {storage.device} is written in Python; "
            "apt install g++, or resize the tensor with resize_"
        )
    return storage
