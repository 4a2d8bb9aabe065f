"""What a build of torch with CUDA, and libraries with kernels for it, would compute on a real GPU.

For virtual GPUs written in Python that stand in: no kernel of CUDA's may be left, which would take the host's memory
for a GPU's.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch.virtual import kernels
from xdevice.backends.torch.virtual.internals import aten, core, library

if TYPE_CHECKING:
    from collections.abc import Callable

_libraries: list[Any] = []  # registrations last as long as these objects
_covered: set[str] = set()


def _operation(full: str) -> Any:
    space, _, name = full.partition("::")
    packet, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")


def _has(full: str, key: str) -> bool:
    return bool(core._dispatch_has_kernel_for_dispatch_key(full, key))


def register(ours: Any) -> None:
    """Replace torch's kernels for CUDA by the CPU's, and what has none by what it is composed of."""
    for full in core._dispatch_get_registrations_for_dispatch_key("CUDA"):
        if not full.startswith("aten::"):
            continue
        if _has(full, "CompositeImplicitAutograd") and not _has(full, "CPU"):
            for key in ("CUDA", "AutogradCUDA"):
                ours.impl(full, _operation(full).decompose, key)
        elif (full.removeprefix("aten::"), "CUDA") not in ours:
            ours.impl(full, kernels.direct(full), "CUDA")
    for kind in ("SparseCUDA", "SparseCsrCUDA", "QuantizedCUDA", "NestedTensorCUDA"):
        for full in core._dispatch_get_registrations_for_dispatch_key(kind):
            if full.startswith("aten::"):
                ours.impl(full, kernels.refused(full), kind)
    for name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"):
        for overload in getattr(aten, name).overloads():
            ours.impl(f"{name}.{overload}".removesuffix(".default"), lambda *args, **kwargs: False, "CUDA")
    cover()


def cover() -> None:
    """Let the CPU's kernels take the place of those for CUDA in other namespaces, such as torchvision's."""
    for full in core._dispatch_get_registrations_for_dispatch_key("CUDA"):
        space = full.partition("::")[0]
        if space in ("aten", "c10d") or full in _covered:  # c10d's are replaced in `process_groups`
            continue
        _covered.add(full)
        if _has(full, "CPU") or _has(full, "CompositeExplicitAutograd"):
            _replace(space, full, kernels.on_host(full, _operation(full)))


def _replace(space: str, full: str, kernel: Callable[..., Any]) -> None:
    ours = library.Library(space, "IMPL")
    _libraries.append(ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its own kernel is replaced
        ours.impl(full.partition("::")[2], kernel, "CUDA", allow_override=True)
