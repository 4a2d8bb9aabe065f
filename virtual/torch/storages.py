"""``torch.UntypedStorage`` on virtual GPUs."""

from typing import Any

import torch

from xdevice.virtual.torch.private_names import in_place_of, own, replace_name
from xdevice.virtual.torch.runtime import in_use


def replace() -> None:
    """Let them be made by themselves, as by pickle and torch.load: torch refuses, crashes, or forgets the index."""

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

    replace_name("torch:UntypedStorage.new", lambda self: own.UntypedStorage(0, device=self.device))
