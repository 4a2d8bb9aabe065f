"""``torch.UntypedStorage`` on virtual GPUs."""

from typing import Any

import torch

from xdevice.virtual.torch.private_names import Function, in_place_of, replace_name, untyped_torch
from xdevice.virtual.torch.runtime import in_use


def replace() -> None:
    """Let programs create storages without a tensor, as pickle and torch.load do.

    torch's own functions raise an error, crash, or ignore the device index.
    """

    @in_place_of("torch:UntypedStorage.resize_")
    def resize_(native: Function, self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type != in_use().name:
            native(self, size)
            return self
        in_use().resize(self, size)
        return self

    @in_place_of("torch:UntypedStorage.__new__")
    def new(native: Function, cls: type, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or torch.device(device).type != in_use().name:
            return native(cls, *args, **kwargs)
        size_or_bytes = args[0] if args else kwargs.get("size", 0)
        create = torch.empty if isinstance(size_or_bytes, int) else torch.tensor
        return create(size_or_bytes, dtype=torch.uint8, device=device).untyped_storage()

    def new_on_device(self: torch.UntypedStorage) -> Any:
        return untyped_torch.UntypedStorage(0, device=self.device)

    replace_name("torch:UntypedStorage.new", new_on_device)
