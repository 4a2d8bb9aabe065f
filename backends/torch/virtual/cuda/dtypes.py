"""The dtypes that CUDA's kernels lack, which are refused, and those that the CPU's lack, which are computed wider."""

import re
from collections.abc import Iterator
from pathlib import Path

import torch

from xdevice.backends.torch.virtual.compiled.plug_in import compiled
from xdevice.kit import virtual_request

_NAMES = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool"
CODES = {**{name: code for code, name in enumerate(_NAMES.split())}, "bfloat16": 15}
"""The dtypes, each with its number in torch's C++."""

_ALL = (1 << 64) - 1

_NO_KERNEL = (
    "Could not run 'aten::{name}' with arguments from the 'CUDA' backend. This could be because the operator doesn't "
    "exist for this backend. 'aten::{name}' is only available for these backends: [CPU]"
)

Row = tuple[str, str, str, int, int]
"""An operation, the reduction that it is about, CUDA's words, and the dtypes: lacking on CUDA, lacking on the CPU."""


def begin() -> None:
    """Tell the plug-in what to refuse, unless it is lenient, and what to compute wider."""
    for name, reduce, words, on_cuda, on_cpu in rows(virtual_request.current().lenient):
        compiled().differ(name.encode(), reduce.encode(), words.encode(), on_cuda, on_cpu)


def rows(lenient: bool) -> Iterator[Row]:
    for line in _table().read_text(encoding="utf-8").splitlines()[1:]:
        where, key, dtypes, *words = re.split(" {2,}", line)
        name, _, reduce = key.partition(" ")
        if where == "CPU":
            yield name, "", "", 0, _mask(dtypes)
        elif where == "CUDA" and not lenient:
            if words:
                yield name, reduce, words[0], _mask(dtypes), 0
            else:  # for this overload alone
                yield name if "." in name else f"{name}.", "", _NO_KERNEL.format(name=name), _ALL, 0


def _table() -> Path:
    """That of the version in use, or of the nearest that has one."""
    mine = _number(torch.__version__)
    tables = Path(__file__).parent.glob("dtypes_*.txt")
    return min(tables, key=lambda path: abs(_number(path.stem.partition("_")[2]) - mine))


def _mask(dtypes: str) -> int:
    return sum(1 << CODES[name] for name in dtypes.split())


def _number(version: str) -> int:
    major, minor = version.split(".")[:2]
    return 100 * int(major) + int(minor)
