"""The dtypes in which CUDA's kernels and the CPU's differ, from ``cuda_dtypes.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

_NAMES = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool"
CODES = {**{name: code for code, name in enumerate(_NAMES.split())}, "bfloat16": 15}
"""The dtypes, each with its number in PyTorch's C++."""
_ALL = (1 << 64) - 1

_NO_KERNEL = (
    "Could not run 'aten::{name}' with arguments from the 'CUDA' backend. This could be because the operator doesn't "
    "exist for this backend. 'aten::{name}' is only available for these backends: [CPU]"
)

Row = tuple[str, str, str, int, int]
"""An operation, the reduction that it is about, CUDA's words, and the dtypes: lacking on CUDA, lacking on the CPU."""


def version() -> str:
    """The version of torch whose table is used: that of the one in use, or of the nearest that has one."""
    mine = _number(torch.__version__)
    return min(_tables(), key=lambda each: (abs(_number(each) - mine), each))


def rows(lenient: bool) -> Iterator[Row]:
    """What virtual GPUs that stand in refuse, unless they are lenient, and what they compute wider."""
    table = _tables()[version()]
    for name, dtypes in table["lacking on the CPU"]:
        yield name, "", "", 0, _mask(dtypes)
    if lenient:
        return
    for key, dtypes, words in table["lacking on CUDA"]:
        name, _, reduce = key.partition(" ")
        yield name, reduce, words, _mask(dtypes), 0
    for name in table["without kernels on CUDA"]:
        base = name if "." in name else f"{name}."
        yield base, "", _NO_KERNEL.format(name=name), _ALL, 0


def tell(function: Callable[[bytes, bytes, bytes, int, int], None], lenient: bool) -> None:
    for name, reduce, words, on_cuda, on_cpu in rows(lenient):
        function(name.encode(), reduce.encode(), words.encode(), on_cuda, on_cpu)


def _tables() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return found


def _mask(dtypes: str) -> int:
    return sum(1 << CODES[name] for name in dtypes.split())


def _number(text: str) -> int:
    major, minor = text.split(".")[:2]
    return 100 * int(major) + int(minor)
