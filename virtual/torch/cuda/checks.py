"""The device checks of CUDA's kernels, read from the file that PyTorch generates them from."""

import re
from functools import cache
from pathlib import Path

import torch

from xdevice.virtual.torch.private_names import kernels_of, untraced


def register() -> None:
    """Let the plug-in call `method`, once for each operation, before it raises CUDA's error."""
    kernels_of("xdevice_virtual").impl("method", untraced(method), "CPU")


def method(operation: str, key: str) -> str:
    """The C++ function that checks the devices of an operation's tensors, or "" if none does.

    ``key`` is the dispatch key of the tensors, ``CUDA`` or such as ``SparseCUDA``.
    """
    if not operation.startswith("aten::"):
        return ""
    full_name = operation.removeprefix("aten::").removesuffix(".")
    entries = _entries()
    entry = entries.get(full_name, "")
    if "\n  device_check: NoCheck" in entry:
        return ""
    name, _, overload = full_name.partition(".")
    if re.search(r"\(\w!\) \w+\) -> ", entry) and "Tensor(a!) self" not in entry:
        name += "_out"
    if key == "CUDA":
        delegate = re.search(r"\n  structured_delegate: (\S+)", entry)
        is_structured = delegate is not None or "\n  structured: True" in entry
        if _has_kernel(entries.get(delegate[1], "") if delegate else entry, key):
            if not is_structured:
                return f"wrapper_CUDA_{overload}_{name}"
            return f"wrapper_CUDA_{name}_{overload}" if overload else f"wrapper_CUDA_{name}"
        key = "SparseCUDA"  # it makes a sparse tensor of dense ones
    return f"wrapper_{key}_{overload}_{name}" if _has_kernel(entry, key) else ""


def _has_kernel(entry: str, key: str) -> bool:
    return re.search(rf"\n    (\w+, )*{key}[:,]", entry) is not None


@cache
def _entries() -> dict[str, str]:
    """The entries of native_functions.yaml by name; none if the wheel lacks the file."""
    path = Path(torch.__file__).parents[1] / "torchgen/packaged/ATen/native/native_functions.yaml"
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    entries = re.split(r"^- func: ", text, flags=re.MULTILINE)[1:]
    return {entry.partition("(")[0]: entry for entry in entries}
