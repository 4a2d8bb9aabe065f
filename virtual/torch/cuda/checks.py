"""The checks of devices that CUDA's kernels begin with, by what PyTorch generates them from."""

import re
from functools import cache
from pathlib import Path

import torch

from xdevice.virtual.torch.private_names import kernels_of, untraced


def register() -> None:
    """Let the plug-in ask, once for each operation, before it raises CUDA's error."""
    kernels_of("xdevice_virtual").impl("method", untraced(method), "CPU")


def method(operation: str) -> str:
    """The C++ function that checks the devices of an operation's tensors; empty where CUDA's kernel does not."""
    full = operation.removeprefix("aten::").removesuffix(".")
    functions = _functions()
    text = functions.get(full, "") if operation.startswith("aten::") else ""
    delegate = re.search(r"\n  structured_delegate: (\S+)", text)
    structured = delegate is not None or "\n  structured: True" in text
    kernels = functions.get(delegate[1], "") if delegate else text
    if "\n  device_check: NoCheck" in text or not re.search(r"\n    (\w+, )*CUDA[:,]", kernels):
        return ""
    name, _, overload = full.partition(".")
    out = "_out" if re.search(r"\(a!\) \w+\) -> ", text) and "Tensor(a!) self" not in text else ""
    if structured:
        return f"wrapper_CUDA_{name}{out}" + (f"_{overload}" if overload else "")
    return f"wrapper_CUDA_{overload}_{name}{out}"


@cache
def _functions() -> dict[str, str]:
    """The entries of native_functions.yaml, which PyTorch's wheel has for those who write kernels; else none."""
    path = Path(torch.__file__).parents[1] / "torchgen/packaged/ATen/native/native_functions.yaml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return {
        entry.partition("(")[0]: entry
        for entry in re.split(r"^- func: ", text, flags=re.MULTILINE)[1:]
    }
