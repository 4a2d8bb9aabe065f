"""``torch.cuda.FloatTensor`` and the like, which a build for the CPU has and refuses to make."""

from typing import Any

import torch

from xdevice.backends.torch.private_names import in_place_of, replace_name

_DTYPES = {
    name: getattr(torch, name.lower()) for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short")
} | {"Bool": torch.bool, "Char": torch.int8, "Byte": torch.uint8}


class _Kind(type):
    """The type of those types: a tensor on a GPU is an instance of the one of its dtype."""

    dtype: torch.dtype

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype

    def __call__(cls, *args: Any, device: Any = None) -> torch.Tensor:
        device = "cuda" if device is None else device
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.as_tensor(args[0], dtype=cls.dtype, device=device)
        size = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args or (0,)
        return torch.empty(size, dtype=cls.dtype, device=device)


def replace() -> None:
    """Replace them, and `torch.set_default_tensor_type`."""
    for name, dtype in _DTYPES.items():
        full = f"torch.cuda.{name}Tensor"  # `Tensor.type` reads the name
        kind = _Kind(full, (), {"dtype": dtype, "is_cuda": True, "__module__": "torch.cuda"})
        replace_name(f"torch.cuda:{name}Tensor", kind)

    @in_place_of("torch:set_default_tensor_type")
    def set_default_tensor_type(plain: Any, t: Any) -> None:
        name = t if isinstance(t, str) else t.__name__
        if not name.startswith("torch.cuda."):
            torch.set_default_device(None)
            plain(t)
            return
        torch.set_default_dtype(getattr(torch.cuda, name.rpartition(".")[2]).dtype)
        torch.set_default_device("cuda")
