"""``torch.cuda.FloatTensor`` and the like, which builds for the CPU lack, and the default type."""

from collections.abc import Sequence
from typing import Any

import torch

from xdevice.virtual.torch.private_names import Function, core, in_place_of, replace_name

Tensor = torch.Tensor

_DTYPES = {
    name: getattr(torch, name.lower())
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short")
} | {"Bool": torch.bool, "Char": torch.int8, "Byte": torch.uint8}


class _TensorType(type):
    """The metaclass of these types: a tensor on a GPU is an instance by its dtype and layout."""

    dtype: torch.dtype
    layout: torch.layout

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, Tensor) or not instance.is_cuda:
            return False
        return instance.dtype == cls.dtype and instance.layout == cls.layout

    def __repr__(cls) -> str:
        return f"<class {cls.__name__!r}>"

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        if device is None:
            device = "cuda"
        device = torch.device(device)
        if device.type != "cuda":
            raise RuntimeError(
                "legacy constructor expects device type: cuda but device type: "
                f"{device.type} was passed"
            )
        if cls.layout is torch.sparse_coo:
            return cls._sparse(*args, device=device)
        if len(args) == 1 and isinstance(args[0], Tensor):
            cls._check(args[0])
            return args[0].detach()
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.tensor(args[0], dtype=cls.dtype, device=device)
        return torch.empty(_size(args), dtype=cls.dtype, device=device)

    def _sparse(cls, *args: Any, device: torch.device) -> Tensor:
        """A tensor of indices, values and an optional size; or an empty tensor of a size."""
        if args and isinstance(args[0], Tensor):
            for tensor, dtype in zip(args, (torch.int64, cls.dtype), strict=False):
                if isinstance(tensor, Tensor):
                    cls._check(tensor, dtype)
            return torch.sparse_coo_tensor(*args, device=device)
        return torch.empty(_size(args), dtype=cls.dtype, device=device, layout=torch.sparse_coo)

    def _check(cls, tensor: Tensor, dtype: torch.dtype | None = None) -> None:
        if not tensor.is_cuda or tensor.dtype != (dtype or cls.dtype):
            raise TypeError(f"expected {cls.__name__} (got {tensor.type()})")


def _size(args: tuple[Any, ...]) -> Sequence[int]:
    """The size that a constructor's arguments give: a `torch.Size`, numbers, or none for (0,)."""
    if len(args) == 1 and isinstance(args[0], torch.Size):
        return args[0]
    return args or (0,)


def replace() -> None:
    for name, dtype in _DTYPES.items():
        _replace_type("torch.cuda", name, dtype, torch.strided)
        if dtype is not torch.bool:
            _replace_type("torch.cuda.sparse", name, dtype, torch.sparse_coo)
    _replace_default()


def _replace_type(module: str, name: str, dtype: torch.dtype, layout: torch.layout) -> None:
    attributes = {
        "__module__": module,
        "dtype": dtype,
        "layout": layout,
        "is_cuda": True,
        "is_sparse": layout is torch.sparse_coo,
    }
    # `Tensor.type` reads the name
    tensor_type = _TensorType(f"{module}.{name}Tensor", (), attributes)
    replace_name(f"{module}:{name}Tensor", tensor_type)


_default: _TensorType | None = None
"""The type that ``torch.Tensor(…)`` makes, if the program has set one on a GPU."""


def _replace_default() -> None:
    """Make the default type apply to factories without ``device=``, and to ``torch.Tensor(…)``."""

    @in_place_of("torch:set_default_tensor_type")
    def set_default_tensor_type(native: Function, t: str | type) -> None:
        global _default
        name = t if isinstance(t, str) else t.__name__
        if not name.startswith("torch.cuda."):
            _default = None
            torch.set_default_device(None)
            native(t)
            return
        tensor_type = getattr(torch.cuda, name.rpartition(".")[2])
        torch.set_default_dtype(tensor_type.dtype)
        torch.set_default_device("cuda")
        # not earlier, so that programs that set no default type are not slower
        if "__new__" not in vars(Tensor):
            replace_name("torch:Tensor.__new__", staticmethod(_new))
        _default = tensor_type


# the parameters are those that Dynamo expects of a C function
def _new(*cls_and_args: Any, **options: Any) -> Tensor:
    cls, *args = cls_and_args
    source = args[0] if args else None
    is_view = isinstance(source, (Tensor, torch.UntypedStorage, torch.TypedStorage))
    if _default is None or is_view:
        return core.TensorBase.__new__(cls, *args, **options)  # type: ignore[no-any-return]  # a C class
    tensor = _default(*args, **options)
    return tensor if cls is Tensor else tensor.as_subclass(cls)
