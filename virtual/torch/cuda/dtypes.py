"""Dtypes as CUDA has them: what its kernels take, and the CPU's do not; and products."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.compiled import compiled
from xdevice.virtual.torch.private_names import aten, kernels_of

Tensor = torch.Tensor

_NAMES = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool"
CODES = {**{name: code for code, name in enumerate(_NAMES.split())}, "bfloat16": 15}
"""The dtypes, each with its number in torch's C++."""

_NO_KERNEL = (
    "Could not run 'aten::{name}' with arguments from the 'CUDA' backend. This could be because the operator doesn't "
    "exist for this backend. 'aten::{name}' is only available for these backends: [CPU]"
)


def begin() -> None:
    """Tell the plug-in what to refuse, unless it is lenient, and what to compute wider."""
    for name, reduce, words, on_cuda, on_cpu in rows(not runtime.is_faithful()):
        compiled().differ(name.encode(), reduce.encode(), words.encode(), on_cuda, on_cpu)


def rows(lenient: bool) -> Iterator[tuple[str, str, str, int, int]]:
    """An operation, the reduction that it is about, CUDA's words, and the dtypes: lacking on CUDA, on the CPU."""
    mine = _number(torch.__version__)
    tables = Path(__file__).parent.glob(
        "dtypes_*.txt"
    )  # of a version each: of that in use, or the nearest
    table = min(tables, key=lambda path: abs(_number(path.stem.partition("_")[2]) - mine))
    for line in table.read_text(encoding="utf-8").splitlines()[1:]:
        where, key, dtypes, *words = re.split(" {2,}", line)
        name, _, reduce = key.partition(" ")
        if where == "CPU":
            yield name, "", "", 0, _mask(dtypes)
        elif where == "CUDA" and not lenient:
            if words:
                yield name, reduce, words[0], _mask(dtypes), 0
            else:  # for this overload alone
                yield (
                    name if "." in name else f"{name}.",
                    "",
                    _NO_KERNEL.format(name=name),
                    (1 << 64) - 1,
                    0,
                )


def _mask(dtypes: str) -> int:
    return sum(1 << CODES[name] for name in dtypes.split())


def _number(version: str) -> int:
    major, minor = version.split(".")[:2]
    return 100 * int(major) + int(minor)


def register_products() -> None:
    """Those wider than the matrices, which CUDA alone has: torch.mm(x, y, out_dtype=torch.float32)."""
    ours = kernels_of("aten")
    for name in "mm", "bmm", "addmm", "baddbmm":
        packet = getattr(aten, name)
        if "dtype" in packet.overloads():
            for overload in "dtype", "dtype_out":
                ours.impl(f"{name}.{overload}", _wide(packet), "CUDA")


def _wide(packet: Any) -> Callable[..., Tensor]:
    def product(*args: Any, out: Tensor | None = None, **factors: Any) -> Tensor:
        *added, x, y, out_dtype = args
        if out is not None and out.dtype != out_dtype:
            raise RuntimeError("out_dtype must be the same as the dtype of the provided out tensor")
        if x.dtype != y.dtype:
            raise RuntimeError("input dtypes must be the same")
        if out_dtype != x.dtype and not (
            out_dtype == torch.float32 and x.dtype in {torch.float16, torch.bfloat16}
        ):
            raise RuntimeError(
                "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs"
            )
        if added and added[0].dtype not in (out_dtype, x.dtype):
            word = "mat1" if x.dim() == 2 else "batch1"
            raise RuntimeError(f"self dtype must match either out_dtype or {word} dtype")
        found: Tensor = packet(*(matrix.to(out_dtype) for matrix in args[:-1]), **factors)
        return found if out is None else out.resize_(found.shape).copy_(found)

    return product
