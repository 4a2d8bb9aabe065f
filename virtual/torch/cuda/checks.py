"""The device checks of CUDA's kernels, read from the file that PyTorch generates them from."""

import re
from functools import cache
from pathlib import Path

import torch

from xdevice.virtual.torch.private_names import kernels_of, untraced


def register() -> None:
    """Let the plug-in call `method`, once for each operation, before it raises CUDA's error."""
    kernels_of("xdevice_virtual").impl("method", untraced(method), "CPU")


def method(operation: str) -> str:
    """The C++ function that checks the devices of an operation's tensors, or "" if none does."""
    if not operation.startswith("aten::"):
        return ""
    full_name = operation.removeprefix("aten::").removesuffix(".")
    entries = _entries()
    entry = entries.get(full_name, "")
    delegate = re.search(r"\n  structured_delegate: (\S+)", entry)
    entry_with_kernels = entries.get(delegate[1], "") if delegate else entry
    has_cuda_kernel = re.search(r"\n    (\w+, )*CUDA[:,]", entry_with_kernels)
    if not has_cuda_kernel or "\n  device_check: NoCheck" in entry:
        return ""
    name, _, overload = full_name.partition(".")
    if re.search(r"\(a!\) \w+\) -> ", entry) and "Tensor(a!) self" not in entry:
        name += "_out"
    is_structured = delegate is not None or "\n  structured: True" in entry
    if not is_structured:
        return f"wrapper_CUDA_{overload}_{name}"
    if overload:
        return f"wrapper_CUDA_{name}_{overload}"
    return f"wrapper_CUDA_{name}"


@cache
def _entries() -> dict[str, str]:
    """The entries of native_functions.yaml by name; none if the wheel lacks the file."""
    path = Path(torch.__file__).parents[1] / "torchgen/packaged/ATen/native/native_functions.yaml"
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    entries = re.split(r"^- func: ", text, flags=re.MULTILINE)[1:]
    return {entry.partition("(")[0]: entry for entry in entries}
