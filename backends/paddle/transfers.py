"""Copies between PaddlePaddle's devices.

A source that is added (`add_source`) tells of each copy; the call of PaddlePaddle around it says what it is for. Where
the source's devices compute with the CPU's kernels, these need no copy of a mask to know its size, or of an operand on
another device: where a GPU would make one, the operation's arguments tell.
"""

import math
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from types import FrameType
from typing import Any

import paddle

from xdevice.backends.paddle import hardware, mixing
from xdevice.backends.paddle.gradients import subclasses
from xdevice.backends.paddle.placement import device_of
from xdevice.backends.paddle.private_names import names
from xdevice.contract import Copy, Kind, Watcher
from xdevice.device import Device
from xdevice.kit import advice
from xdevice.kit.marks import mark
from xdevice.kit.places import CopySources
from xdevice.kit.private_names import replaced

_HOST = Device("cpu", 0)
_COUNT = 8  # bytes: an int64
_WAIT = {
    "masked_select",
    "nonzero",
    "unique",
    "unique_consecutive",
}  # whose result has a size that the GPU counts
_INDEXING = {"getitem", "setitem"}
_LIBRARIES = {"paddle", "xdevice", "contextlib", "functools", "decorator"}

_sources = CopySources()
add_source = _sources.add


@contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    names.require("watch_transfers()")
    told = _Told(watcher)
    with mixing.looking(told.look), ExitStack() as stack:
        for owner, name, make in list(_replacements(told, watcher)):
            stack.enter_context(replaced(owner, name, make))
        stack.enter_context(_sources.watching(told.see, watcher))
        yield


def unseen() -> Iterable[str]:
    yield "copies within a static graph"
    if not hardware.replaced_gpus.number:
        yield "copies by to_tensor, set_value and copy_, in a backward pass and by a DataLoader, on real GPUs"


def words() -> Mapping[str, str]:
    return advice.read(__file__)


class _Told:
    """Tells the watcher of the plug-in's copies, and of those that the arguments of a call tell."""

    def __init__(self, watcher: Watcher) -> None:
        self._see, self._here = watcher.see, watcher.here
        self._loading: Any = None  # for which place the loader's threads work
        self._not_loaded: Exception | None = None  # why they failed

    def see(self, source: int, target: int, nbytes: int, address: int) -> int:
        """A copy that the plug-in is about to make; 0 if it is not to be made."""
        frame = sys._getframe().f_back  # pyright: ignore[reportPrivateUsage]  # who copies
        try:
            sent = mark(address, nbytes) if source < 0 else 0
            copy = _copy(frame, nbytes, _device(source), _device(target))
            if copy:
                self._see(copy._replace(mark=sent), self._loading if frame is None else None)
        except Exception as error:  # it cannot go through PaddlePaddle
            if frame is None:
                self._not_loaded = error
            else:
                mixing.refuse(error, frame)
            return 0
        return 1

    def load(self, read: Callable[..., Any]) -> Callable[..., Any]:
        """What begins to read a loader, or reads on: the library's own threads copy the batches behind it."""

        @wraps(read)
        def call(*args: Any) -> Any:
            self._loading = self._here("copy")
            try:
                return read(*args)
            except Exception:
                error, self._not_loaded = self._not_loaded, None
                if error is None:
                    raise
                raise error from None

        return call

    def look(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (*args, *kwargs.values())
        if name in _WAIT or (name == "getitem" and _has_mask(given[1:])):
            self._tell("size", name, _COUNT, device_of(given[0]), _HOST)
        elif name in ("numpy", "item") and not hardware.replaced_gpus.number:
            nbytes = _nbytes(given[0]) if name == "numpy" else given[0].element_size()
            self._tell("copy", name, nbytes, device_of(given[0]), _HOST)
        elif name == "copy_to" and not hardware.replaced_gpus.number:
            self._tell(
                "copy", name, _nbytes(given[0]), device_of(given[0]), hardware.as_device(given[1])
            )
        else:
            for arguments in mixing.together(name, args, kwargs):
                self._mix(name, mixing.mixture(name, arguments))

    def _mix(self, name: str, found: list[tuple[Any, Device]]) -> None:
        """Of tensors in several places, the operation runs where an index's tensor is, else where the last GPU's is."""
        if not found:
            return
        is_index = name in _INDEXING
        target = (
            found[0][1] if is_index else [place for _, place in found if place.kind != "cpu"][-1]
        )
        for tensor, place in found:
            self._tell("index" if is_index else "operand", name, _nbytes(tensor), place, target)

    def _tell(self, kind: Kind, name: str, nbytes: int, source: Device, target: Device) -> None:
        if source is not target:
            self._see(Copy(kind, name, nbytes, source, target))


def _copy(frame: FrameType | None, nbytes: int, source: Device, target: Device) -> Copy | None:
    """What the library copies in this frame; None for a copy that only the source makes."""
    around: list[tuple[str, tuple[Any, ...]]] = []
    for each in mixing.frames_of(frame):
        module: str = each.f_globals.get("__name__", "")
        if _sources.made_in(module):
            return None  # no GPU would make it
        if module.partition(".")[0] not in _LIBRARIES:
            break
        call = mixing.call_of(each)
        if call:
            around.append(call)
    args: tuple[Any, ...]
    name, args = around[0] if around else ("copy", ())
    if name.startswith(mixing.LEGACY):
        return None
    if name == "numpy":  # it copies what was allocated
        nbytes = _nbytes(args[0])
    does_not_wait = name == "copy_to" and args[-1] is False
    return Copy(
        _kind([name for name, _ in around], target), name, nbytes, source, target, does_not_wait
    )


def _kind(names: list[str], target: Device) -> Kind:
    """What a copy is for, by the calls around it."""
    if not set(mixing.BACKWARD).isdisjoint(names):
        return "gradient"
    if not names or names[0] in mixing.COPIES:
        return "copy"
    if target is _HOST:
        return "number"
    return "index" if names[0] in _INDEXING else "operand"


def _has_mask(keys: Iterable[Any]) -> bool:
    flat = [part for key in keys for part in (key if isinstance(key, tuple) else (key,))]
    return any(isinstance(part, paddle.Tensor) and part.dtype == paddle.bool for part in flat)


def _nbytes(tensor: Any) -> int:
    shape: list[int] = tensor.shape
    return math.prod(shape) * int(tensor.element_size())


def _device(index: int) -> Device:
    return _HOST if index < 0 else Device("gpu", index)


def _replacements(told: _Told, watcher: Watcher) -> Iterable[tuple[Any, str, Callable[[Any], Any]]]:
    """What is replaced: its owner, its name, and what makes the new one of the old."""
    for cls in subclasses(names.value("paddle.io.dataloader.dataloader_iter:_DataLoaderIterBase")):
        yield from (
            (cls, name, told.load) for name in ("__init__", "__next__") if name in vars(cls)
        )
    for cls in subclasses(paddle.optimizer.Optimizer):
        for name in {"step", "minimize"} & vars(cls).keys():
            yield cls, name, partial(_counted, cls, name, watcher)


def _counted(cls: type, name: str, watcher: Watcher, run: Any) -> Any:
    @wraps(run)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        if (
            next(each for each in type(self).__mro__ if name in vars(each)) is cls
        ):  # not where a subclass calls it
            watcher.stepped(self)
        return result

    return call
