"""Copies between devices that virtual GPUs are about to make, and those that a real GPU would make there."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import torch

from xdevice.contract import Copy, Watcher
from xdevice.device import Device
from xdevice.kit.marks import mark
from xdevice.virtual import bus
from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.private_names import core
from xdevice.virtual.torch.runtime import NAME, known

_HOST = Device("cpu", 0)
_COUNT = 8  # bytes of a number of elements

package = "xdevice.virtual.torch"

_see: Callable[[Copy], None] | None = None


@contextmanager
def watching(see: Callable[[Copy], None], watcher: Watcher) -> Generator[None]:
    """A block in which this function, which may raise, is called with each copy before it is made."""
    global _see
    _see = see
    runtime.in_use().watch(True)
    try:
        yield
    finally:
        _see = None
        runtime.in_use().watch(False)


def until(index: int) -> float:
    """When the copies of the virtual GPU will have been made, by ``time.perf_counter``."""
    return bus.until_of("torch", Device("gpu", index))


def wait(until: float) -> None:
    """Wait for such a time."""
    bus.wait_until(until)


def look(operation: str, tensors: Sequence[torch.Tensor | None], flag: bool) -> None:
    """An operation that may copy is about to run on these tensors; the flag is its first: non_blocking, accumulate."""
    see = _see
    if see is None:
        return
    with core.DisableTorchFunction():  # subclasses and modes of the program have no part in this
        found = [*_copies(operation, tensors, flag)]
    for copy in found:
        see(copy)


def _copies(operation: str, tensors: Sequence[torch.Tensor | None], flag: bool) -> Iterator[Copy]:
    first, *others = tensors
    if operation.startswith("aten::copy_"):
        if first is not None and others[0] is not None:
            yield from _between(operation, others[0], first, flag)
    elif first is None:
        return
    elif "index" in operation:
        yield from _of_indices(operation, first, others, flag)
    elif not first.is_cpu:
        if operation == "aten::_local_scalar_dense":
            yield Copy("number", operation, first.element_size(), known(first.device), _HOST)
        else:
            yield Copy("size", operation, _COUNT, known(first.device), _HOST)


def _between(
    operation: str, source: torch.Tensor, target: torch.Tensor, non_blocking: bool
) -> Iterator[Copy]:
    if source.device == target.device:
        return
    parts = (
        (source._indices(), source._values()) if source.layout is torch.sparse_coo else (source,)
    )
    size = sum(part.numel() * part.element_size() for part in parts)
    host = next(
        (tensor for tensor in (source, target) if tensor.is_cpu and tensor.layout is torch.strided),
        None,
    )
    pinned = host is not None and host.is_pinned()
    sent = _mark(source) if host is source else 0
    yield Copy(
        "copy",
        operation,
        size,
        known(source.device),
        known(target.device),
        non_blocking,
        pinned,
        sent,
    )


def _mark(tensor: torch.Tensor) -> int:
    dense = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return mark(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if dense else 0


def _of_indices(
    operation: str, tensor: torch.Tensor, others: Sequence[torch.Tensor | None], accumulate: bool
) -> Iterator[Copy]:
    """Those of the host are sent, and a mask's number of elements is waited for."""
    values = others[-1] if "put" in operation else None
    indices = [each for each in (others if values is None else others[:-1]) if each is not None]
    by_number = (
        values is not None and values.numel() == 1 and (values.is_cpu or values.device.type == NAME)
    )
    if by_number and not accumulate and len(indices) == 1 and _is_mask(indices[0]):
        indices = [each for each in indices if each.is_cpu]  # CUDA fills it, without waiting
    for index in indices:
        if index.is_cpu and not tensor.is_cpu:
            size = index.numel() * index.element_size()
            yield Copy("index", operation, size, _HOST, known(tensor.device), mark=_mark(index))
        elif not index.is_cpu and _is_mask(index):
            yield Copy("size", operation, _COUNT, known(index.device), _HOST)


def _is_mask(index: torch.Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)
