"""Copies between PaddlePaddle's devices.

A source that is added (`add_source`) reports each copy, and the call of PaddlePaddle around it
gives its purpose. If the source's devices compute with the CPU's kernels, a mask is not copied to
learn its size, and an operand on another device is not copied at all. A copy that a GPU would make
there is derived from the operation's arguments.
"""

import math
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

import paddle

from xdevice.backends.kit import advice
from xdevice.backends.kit.marks import mark
from xdevice.backends.kit.places import CopySources
from xdevice.backends.kit.private_names import replaced
from xdevice.backends.paddle import calls, hardware
from xdevice.backends.paddle.calls import Arguments, Keywords
from xdevice.backends.paddle.gradients import subclasses
from xdevice.backends.paddle.mixing import PlacedTensor, mixture
from xdevice.backends.paddle.placement import device_of
from xdevice.backends.paddle.private_names import names
from xdevice.contract import Copy, Kind, Tensor, Watcher
from xdevice.device import Device

Function: TypeAlias = Callable[..., Any]
Line: TypeAlias = Any  # of the program, as the watcher returns it

_HOST = Device("cpu", 0)
_SIZE_BYTES = 8  # a size is an int64
# operations whose result has a size that the GPU counts
_COUNTING = {"masked_select", "nonzero", "unique", "unique_consecutive"}
_INDEXING = {"getitem", "setitem"}
_LIBRARIES = {"paddle", "xdevice", "contextlib", "functools", "decorator"}

_sources = CopySources()
add_source = _sources.add


class _Replacement(NamedTuple):
    """A method that is replaced while copies are watched."""

    owner: type
    name: str
    make: Callable[[Function], Function]  # makes the new method of the original


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    names.require("watch_transfers()")
    reporter = _Reporter(watcher)
    with calls.observing(reporter.observe), ExitStack() as stack:
        for owner, name, make in list(_replacements(reporter, watcher)):
            stack.enter_context(replaced(owner, name, make))
        stack.enter_context(_sources.watching(reporter.report_source_copy, watcher))
        yield


def unseen() -> Iterable[str]:
    yield "copies within a static graph"
    if not _sources:
        yield (
            "copies by to_tensor, set_value and copy_, in a backward pass and by a DataLoader, "
            "on real GPUs"
        )
        yield (
            "operands of a compiled function that was imported by name, "
            "as in `from paddle.linalg import matmul`"
        )


def words() -> Mapping[str, str]:
    return advice.read(__file__)


class _Reporter:
    """Reports to the watcher copies of a source, and copies that follow from a call's arguments."""

    def __init__(self, watcher: Watcher) -> None:
        self._report = watcher.see
        self._current_line = watcher.here
        self._loading_line: Line = None  # the line for which a loader's threads work
        self._loading_error: Exception | None = None  # raised in a loader's thread

    def report_source_copy(self, source: int, target: int, nbytes: int, address: int) -> int:
        """Report a copy that the source is about to make; the result 0 forbids it."""
        frame = sys._getframe().f_back  # the caller's
        try:
            copied_mark = mark(address, nbytes) if source < 0 else 0
            copy = _copy(frame, nbytes, _device(source), _device(target))
            if copy:
                line = self._loading_line if frame is None else None
                self._report(copy._replace(mark=copied_mark), line)
        except Exception as error:  # it cannot pass through PaddlePaddle's library
            if frame is None:
                self._loading_error = error
            else:
                calls.raise_instead(error, frame)
            return 0
        return 1

    def loading(self, read: Function) -> Function:
        """A method that starts a loader's iterator, or advances it.

        The library's threads copy the batches.
        """

        @wraps(read)
        def call(*args: Any) -> Any:
            self._loading_line = self._current_line("copy")
            try:
                return read(*args)
            except Exception:
                error = self._loading_error
                self._loading_error = None
                if error is None:
                    raise
                raise error from None

        return call

    def observe(self, name: str, args: Arguments, kwargs: Keywords) -> None:
        """Report the copies that follow from the arguments of an operation."""
        arguments = (*args, *kwargs.values())
        sees_calls = not _sources
        if name in _COUNTING or (name == "getitem" and _has_mask(arguments[1:])):
            self._report_copy("size", name, _SIZE_BYTES, device_of(arguments[0]), _HOST)
        elif name == "numpy" and sees_calls:
            tensor = arguments[0]
            self._report_copy("copy", name, _nbytes(tensor), device_of(tensor), _HOST)
        elif name == "item" and sees_calls:
            tensor = arguments[0]
            self._report_copy("copy", name, tensor.element_size(), device_of(tensor), _HOST)
        elif name == "copy_to" and sees_calls:
            tensor, target = arguments[0], hardware.as_device(arguments[1])
            self._report_copy("copy", name, _nbytes(tensor), device_of(tensor), target)
        else:
            for group in calls.computed_together(name, args, kwargs):
                self._report_mixture(name, mixture(name, group))

    def _report_mixture(self, name: str, tensors: list[PlacedTensor]) -> None:
        """Report the operands that are copied to where the operation runs.

        Indexing runs where the indexed tensor is, and another operation on the last tensor's GPU.
        """
        if not tensors:
            return
        kind: Kind = "index" if name in _INDEXING else "operand"
        if name in _INDEXING:
            target = tensors[0].device
        else:
            target = [device for _, device in tensors if device.kind != "cpu"][-1]
        for tensor, device in tensors:
            self._report_copy(kind, name, _nbytes(tensor), device, target)

    def _report_copy(
        self, kind: Kind, name: str, nbytes: int, source: Device, target: Device
    ) -> None:
        if source is not target:
            self._report(Copy(kind, name, nbytes, source, target))


def _copy(frame: FrameType | None, nbytes: int, source: Device, target: Device) -> Copy | None:
    """What the library copies in this frame; None for a copy that a GPU would not make."""
    calls_around: list[tuple[str, Arguments]] = []
    for caller in calls.frames_from(frame):
        module: str = caller.f_globals.get("__name__", "")
        if _sources.made_in(module):
            return None
        if module.partition(".")[0] not in _LIBRARIES:
            break
        call = calls.call_in(caller)
        if call:
            calls_around.append(call)
    name: str = "copy"
    args: Arguments = ()
    if calls_around:
        name, args = calls_around[0]
    if name.startswith(calls.LEGACY):
        return None
    if name == "numpy":  # the copied memory may be larger than the tensor
        nbytes = _nbytes(args[0])
    does_not_wait = name == "copy_to" and args[-1] is False
    kind = _kind([name for name, _ in calls_around], target)
    return Copy(kind, name, nbytes, source, target, does_not_wait)


def _kind(names: list[str], target: Device) -> Kind:
    """The purpose of a copy, by the names of the calls around it, the innermost first."""
    if not set(calls.BACKWARD).isdisjoint(names):
        return "gradient"
    if not names or names[0] in calls.COPIES:
        return "copy"
    if target is _HOST:
        return "number"
    return "index" if names[0] in _INDEXING else "operand"


def _has_mask(keys: Iterable[Any]) -> bool:
    for key in keys:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, paddle.Tensor) and part.dtype == paddle.bool for part in parts):
            return True
    return False


def _nbytes(tensor: Tensor) -> int:
    shape: list[int] = tensor.shape
    return math.prod(shape) * int(tensor.element_size())


def _device(index: int) -> Device:
    return _HOST if index < 0 else Device("gpu", index)


def _replacements(reporter: _Reporter, watcher: Watcher) -> Iterable[_Replacement]:
    iterator = names.value("paddle.io.dataloader.dataloader_iter:_DataLoaderIterBase")
    for cls in subclasses(iterator):
        for name in ("__init__", "__next__"):
            if name in vars(cls):
                yield _Replacement(cls, name, reporter.loading)
    for cls in subclasses(paddle.optimizer.Optimizer):
        for name in {"step", "minimize"} & vars(cls).keys():
            yield _Replacement(cls, name, partial(_counting_steps, cls, name, watcher))


def _counting_steps(cls: type, name: str, watcher: Watcher, run: Function) -> Function:
    """The optimizer's method, which also counts a step."""

    @wraps(run)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        # a subclass that overrides the method counts the step itself
        owner = next(base for base in type(self).__mro__ if name in vars(base))
        if owner is cls:
            watcher.stepped(self)
        return result

    return call
