"""Storages made by themselves, as pickle and torch.load make them: torch refuses, crashes, or forgets the index."""

from typing import Any

import torch

from xdevice.backends.torch.private_names import in_place_of, replace_name, storages
from xdevice.backends.torch.virtual.runtime import in_use


def replace() -> None:
    @in_place_of("torch:UntypedStorage.resize_")
    def resize_(resize: Any, self: Any, size: int) -> Any:
        if self.device.type != in_use().name:
            return resize(self, size)
        in_use().resize(self, size)
        return self

    @in_place_of("torch:UntypedStorage.__new__")
    def new(make: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or torch.device(device).type != in_use().name:
            return make(cls, *args, **kwargs)
        content = args[0] if args else kwargs.get("size", 0)
        fill = torch.empty if isinstance(content, int) else torch.tensor  # how many bytes, or which
        return fill(content, dtype=torch.uint8, device=device).untyped_storage()

    def new_like(self: Any) -> Any:
        return storages(0, device=self.device)

    replace_name("torch:UntypedStorage.new", new_like)
