"""Copies between devices that virtual GPUs are about to make, or that real GPUs would make."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import torch

from xdevice.backends.kit.marks import mark
from xdevice.contract import Copy, Watcher
from xdevice.device import Device
from xdevice.virtual import bus
from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.private_names import core
from xdevice.virtual.torch.runtime import NAME, xdevice_device

Tensor = torch.Tensor

_HOST = Device("cpu", 0)
_COUNT_BYTES = 8  # the size of an int64, which holds a number of elements

package = "xdevice.virtual.torch"

_see: Callable[[Copy], None] | None = None


@contextmanager
def watching(see: Callable[[Copy], None], watcher: Watcher) -> Generator[None]:
    """A block in which ``see``, which may raise, is called with each copy before it is made."""
    global _see
    _see = see
    runtime.in_use().watch(True)
    try:
        yield
    finally:
        _see = None
        runtime.in_use().watch(False)


def busy_until(index: int) -> float:
    """The time by ``time.perf_counter`` at which all copies of the virtual GPU will be complete."""
    return bus.busy_until_of("torch", Device("gpu", index))


def wait_until(time: float) -> None:
    bus.wait_until(time)


def report_copies(operation: str, tensors: Sequence[Tensor | None], flag: bool) -> None:
    """Report the copies of an operation before it runs on these tensors.

    The flag is the operation's first Boolean argument, ``non_blocking`` or ``accumulate``; it is
    true for an operation that reads a number inside its kernel.
    """
    see = _see
    if see is None:
        return
    with core.DisableTorchFunction():  # do not call the program's tensor subclasses and modes
        copies = [*_copies(operation, tensors, flag)]
    for copy in copies:
        see(copy)


def _copies(operation: str, tensors: Sequence[Tensor | None], flag: bool) -> Iterator[Copy]:
    first, *more = tensors
    if operation.startswith("aten::copy_"):
        if first is not None and more[0] is not None:
            yield from _between(operation, more[0], first, flag)
    elif first is None:
        return
    elif "index" in operation:
        yield from _of_indices(operation, first, more, flag)
    elif not first.is_cpu:
        device = xdevice_device(first.device)
        if operation == "aten::_local_scalar_dense" or flag:
            yield Copy("number", operation, first.element_size(), device, _HOST)
        else:
            yield Copy("size", operation, _COUNT_BYTES, device, _HOST)


def _between(operation: str, source: Tensor, target: Tensor, non_blocking: bool) -> Iterator[Copy]:
    if source.device == target.device:
        return
    host = None
    for tensor in (source, target):
        if tensor.is_cpu and tensor.layout is torch.strided:
            host = tensor
            break
    yield Copy(
        "copy",
        operation,
        _size_in_bytes(source),
        xdevice_device(source.device),
        xdevice_device(target.device),
        non_blocking,
        pinned=host is not None and host.is_pinned(),
        mark=_mark(source) if host is source else 0,
    )


def _size_in_bytes(tensor: Tensor) -> int:
    if tensor.layout is torch.sparse_coo:
        return _size_in_bytes(tensor._indices()) + _size_in_bytes(tensor._values())
    return tensor.numel() * tensor.element_size()


def _mark(tensor: Tensor) -> int:
    """The mark of a dense tensor's content; 0 for other tensors."""
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return 0
    return mark(tensor.data_ptr(), _size_in_bytes(tensor))


def _of_indices(
    operation: str, tensor: Tensor, arguments: Sequence[Tensor | None], accumulate: bool
) -> Iterator[Copy]:
    """Indices on the host are copied, and the host waits for the number of elements of a mask."""
    values = None
    if "put" in operation:
        *arguments, values = arguments
    indices = [index for index in arguments if index is not None]
    if len(indices) == 1 and not accumulate and _is_number(values) and _is_mask(indices[0]):
        # CUDA fills the masked elements, and does not wait for their number
        indices = [index for index in indices if index.is_cpu]
    for index in indices:
        if index.is_cpu and not tensor.is_cpu:
            device = xdevice_device(tensor.device)
            size = _size_in_bytes(index)
            yield Copy("index", operation, size, _HOST, device, mark=_mark(index))
        elif not index.is_cpu and _is_mask(index):
            yield Copy("size", operation, _COUNT_BYTES, xdevice_device(index.device), _HOST)


def _is_number(values: Tensor | None) -> bool:
    if values is None or values.numel() != 1:
        return False
    return values.is_cpu or values.device.type == NAME


def _is_mask(index: Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)
