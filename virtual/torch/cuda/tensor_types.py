"""``torch.cuda.FloatTensor`` and the like, which a build for the CPU refuses to make, and the default type."""

from typing import Any

import torch

from xdevice.virtual.torch.private_names import core, in_place_of, replace_name

Tensor = torch.Tensor

_TYPES = {
    name: getattr(torch, name.lower())
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short")
} | {"Bool": torch.bool, "Char": torch.int8, "Byte": torch.uint8}


class _Kind(type):
    """The type of those types: a tensor on a GPU is an instance of the one of its dtype and layout."""

    dtype: torch.dtype
    layout: torch.layout

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, Tensor) or not instance.is_cuda:
            return False
        return instance.dtype == cls.dtype and instance.layout == cls.layout

    def __repr__(cls) -> str:
        return f"<class {cls.__name__!r}>"

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        there = torch.device("cuda" if device is None else device)
        if there.type != "cuda":
            raise RuntimeError(
                f"legacy constructor expects device type: cuda but device type: {there.type} was passed"
            )
        if cls.layout is torch.sparse_coo:
            return cls._sparse(*args, device=there)
        if len(args) == 1 and isinstance(args[0], Tensor):
            cls._check(args[0])
            return args[0].detach()
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return torch.tensor(args[0], dtype=cls.dtype, device=there)
        size = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args or (0,)
        return torch.empty(size, dtype=cls.dtype, device=there)

    def _sparse(cls, *args: Any, device: torch.device) -> Tensor:
        """Of indices and values, and perhaps a size; or empty, of a size."""
        if args and isinstance(args[0], Tensor):
            for tensor, dtype in zip(args, (torch.int64, cls.dtype), strict=False):
                if isinstance(tensor, Tensor):
                    cls._check(tensor, dtype)
            return torch.sparse_coo_tensor(*args, device=device)
        size = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args or (0,)
        return torch.empty(size, dtype=cls.dtype, device=device, layout=torch.sparse_coo)

    def _check(cls, tensor: Tensor, dtype: torch.dtype | None = None) -> None:
        if not tensor.is_cuda or tensor.dtype != (dtype or cls.dtype):
            raise TypeError(f"expected {cls.__name__} (got {tensor.type()})")


def replace() -> None:
    for space, layout in ("torch.cuda", torch.strided), ("torch.cuda.sparse", torch.sparse_coo):
        for name, dtype in _TYPES.items():
            if layout is torch.strided or dtype is not torch.bool:
                full = f"{space}.{name}Tensor"  # `Tensor.type` reads the name
                made = {
                    "dtype": dtype,
                    "layout": layout,
                    "is_cuda": True,
                    "is_sparse": layout is torch.sparse_coo,
                }
                replace_name(
                    f"{space}:{name}Tensor", _Kind(full, (), {**made, "__module__": space})
                )
    _replace_default()


_default: list[Any] = []
"""The type that ``torch.Tensor(…)`` makes, where that is one of a GPU's."""


def _replace_default() -> None:
    """The default type, which factories without ``device=`` follow, and ``torch.Tensor(…)``."""

    @in_place_of("torch:set_default_tensor_type")
    def set_default_tensor_type(plain: Any, t: Any) -> None:
        name = t if isinstance(t, str) else t.__name__
        if not name.startswith("torch.cuda."):
            _default.clear()
            torch.set_default_device(None)
            plain(t)
            return
        kind = getattr(torch.cuda, name.rpartition(".")[2])
        torch.set_default_dtype(kind.dtype)
        torch.set_default_device("cuda")
        if "__new__" not in vars(
            Tensor
        ):  # from now on: it costs nothing where no program asks for it
            replace_name("torch:Tensor.__new__", staticmethod(_new))
        _default[:] = [kind]


def _new(
    *given: Any, **options: Any
) -> Tensor:  # with parameters that Dynamo takes for those of a C function
    cls, *args = given
    made_of = args[0] if args else None
    if not _default or isinstance(made_of, (Tensor, torch.UntypedStorage, torch.TypedStorage)):
        return core.TensorBase.__new__(cls, *args, **options)  # type: ignore[no-any-return]  # a C class
    made: Tensor = _default[0](*args, **options)
    return made if cls is Tensor else made.as_subclass(cls)
