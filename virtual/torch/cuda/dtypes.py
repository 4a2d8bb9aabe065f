"""Dtypes as on CUDA: those that its kernels accept, and matrix products of wider dtypes."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.compiled import compiled
from xdevice.virtual.torch.private_names import aten, kernels_of

Tensor = torch.Tensor

_NAMES = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool"
CODES = {**{name: code for code, name in enumerate(_NAMES.split())}, "bfloat16": 15}
"""The number of each dtype in torch's C++ (``c10::ScalarType``)."""

_NO_KERNEL = (
    "Could not run 'aten::{name}' with arguments from the 'CUDA' backend. This could be because "
    "the operator doesn't exist for this backend. 'aten::{name}' is only available for these "
    "backends: [CPU]"
)


def begin() -> None:
    """Tell the plug-in which dtypes to refuse, unless it is lenient, and which to widen."""
    for row in rows(not runtime.is_faithful()):
        words = (text.encode() for text in (row.operation, row.reduction, row.message))
        compiled().add_dtypes(*words, row.lacking_on_cuda, row.lacking_on_cpu)


class Row(NamedTuple):
    """A difference between the dtypes of CUDA's kernel and the CPU's; dtypes are a bit mask."""

    operation: str
    reduction: str = ""  # the value of the argument ``reduce`` for which they differ
    message: str = ""  # CUDA's error
    lacking_on_cuda: int = 0
    lacking_on_cpu: int = 0


_ALL_DTYPES = (1 << 64) - 1


def rows(lenient: bool) -> Iterator[Row]:
    """The table of the version in use, or of the nearest one: without CUDA's errors if lenient."""
    version = _as_number(torch.__version__)
    tables = Path(__file__).parent.glob("dtypes_*.txt")
    table = min(tables, key=lambda path: abs(_version_of_table(path) - version))
    for line in table.read_text(encoding="utf-8").splitlines()[1:]:
        device, key, dtypes, *message = re.split(" {2,}", line)
        name, _, reduction = key.partition(" ")
        if device == "CPU":
            yield Row(name, lacking_on_cpu=_mask(dtypes))
        elif device == "CUDA" and not lenient:
            if message:
                yield Row(name, reduction, message[0], lacking_on_cuda=_mask(dtypes))
            else:  # CUDA has no kernel for this overload
                overload = name if "." in name else f"{name}."
                error = _NO_KERNEL.format(name=name)
                yield Row(overload, message=error, lacking_on_cuda=_ALL_DTYPES)


def _mask(dtypes: str) -> int:
    return sum(1 << CODES[name] for name in dtypes.split())


def _version_of_table(path: Path) -> int:
    return _as_number(path.stem.partition("_")[2])


def _as_number(version: str) -> int:
    major, minor = version.split(".")[:2]
    return 100 * int(major) + int(minor)


def register_products() -> None:
    """Register ``torch.mm(x, y, out_dtype=torch.float32)`` and the like, which CUDA alone has."""
    kernels = kernels_of("aten")
    for name in ("mm", "bmm", "addmm", "baddbmm"):
        packet = getattr(aten, name)
        if "dtype" in packet.overloads():
            for overload in ("dtype", "dtype_out"):
                kernels.impl(f"{name}.{overload}", _wide(packet), "CUDA")


def _wide(packet: Any) -> Callable[..., Tensor]:
    def product(*args: Any, out: Tensor | None = None, **factors: Any) -> Tensor:
        *added, x, y, out_dtype = args
        if out is not None and out.dtype != out_dtype:
            raise RuntimeError("out_dtype must be the same as the dtype of the provided out tensor")
        if x.dtype != y.dtype:
            raise RuntimeError("input dtypes must be the same")
        widens_half = out_dtype == torch.float32 and x.dtype in {torch.float16, torch.bfloat16}
        if out_dtype != x.dtype and not widens_half:
            raise RuntimeError(
                "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs"
            )
        if added and added[0].dtype not in (out_dtype, x.dtype):
            argument = "mat1" if x.dim() == 2 else "batch1"
            raise RuntimeError(f"self dtype must match either out_dtype or {argument} dtype")
        result: Tensor = packet(*(matrix.to(out_dtype) for matrix in args[:-1]), **factors)
        if out is None:
            return result
        return out.resize_(result.shape).copy_(result)

    return product
