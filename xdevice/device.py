"""``Device``, the value: parse, compare, print."""

from __future__ import annotations

from _operator import index as _index  # operator.index, without its 0.3 ms

from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceSpellingError,
    DeviceTypeError,
    XDeviceError,
    did_you_mean,
    shortened,
)
from xdevice.hooks import hooks
from xdevice.tracing import constant

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable
    from typing import Any

__all__ = ["Device"]

MAX_INDEX = 2**31 - 1  # the largest index: DLPack's ``device_id`` is a signed 32-bit integer
_GPU_WORDS = {"cuda", "rocm", "hip", "mps", "metal", "xpu"}  # what each maker calls its GPU
_VIRTUAL = "vgpu"  # what a framework calls a virtual GPU, where it needs a word of its own
_COMMON = frozenset({"cpu", "gpu", "tpu"})  # words that mean the same in every framework
_OWN = frozenset(
    {_VIRTUAL, "meta"}
)  # words of one framework that are no misspelt ones: meta is not metal

_WORD, _INDEX = r"(?P<kind>(?!place\b|tfrt_)[a-z]+(?:_[a-z]+)*)", r"(?P<index>0|[1-9][0-9]*)"
_SPELLINGS = (
    # gpu:1, cuda:1, /GPU:1, /device:GPU:1, /job:localhost/replica:0/task:0/device:GPU:1
    rf"(?:/job:[a-z0-9_]+)?(?:/replica:\d+)?(?:/task:\d+)?(?:/?device:|/)?{_WORD}(?::{_INDEX})?",
    rf"{_WORD}\({_INDEX}?\)",  # gpu(1), cpu()
    rf"place\({_WORD}(?::{_INDEX})?\)",  # Place(gpu:1)
    rf"device\(type='{_WORD}'(?:, index={_INDEX})?\)",  # device(type='cuda', index=1)
    rf"tfrt_{_WORD}_{_INDEX}",  # TFRT_CPU_0
    rf"{_WORD}device\(id={_INDEX}(?:, [^()]*(?:\([^()]*\)[^()]*)*)?\)",  # CudaDevice(id=1)
)

_devices: dict[tuple[str, int], Device] = {}  # every Device there is: equal means identical
_spelled: dict[str, Device] = {}
_patterns: list[re.Pattern[str]] = []


class Device:
    """A device: a kind and an index, such as ``gpu:1``.

    ``kind`` is ``cpu``, ``gpu`` (whatever the framework calls its GPU), ``tpu``, or the framework's
    own word. The index is always resolved, so ``gpu`` is ``gpu:0``. Any framework's spelling is
    accepted. There is one object per device, so comparing two devices compares identities.

    ``==`` with a string or a native device compares what they name; a malformed string is unequal. Only
    devices hash alike: in a set, or as keys of a dict, do not mix them with strings or native devices.

    Building a device says nothing about its existence; using one that is not there raises
    `DeviceNotFoundError`. ``with device:`` is ``with scope(device):``.

    Raises
    ------
    DeviceSpellingError
        A malformed spelling, or an index that is negative or over ``2**31 - 1``.
    DeviceTypeError
        A kind that is not a string; an index that is not an integer (``True`` and ``1.0`` are not).

    Examples
    --------
    >>> from xdevice import Device
    >>> Device("gpu", 1)
    Device('gpu:1')
    >>> Device("cuda:1") is Device("/job:localhost/replica:0/task:0/device:GPU:1")
    True
    >>> Device("gpu", 1) == "cuda:1"
    True
    >>> print(Device("cpu"))
    cpu:0
    """

    __slots__ = ("index", "kind")
    __match_args__ = ("kind", "index")
    kind: str
    index: int

    def __new__(cls, kind: str, index: int | None = None) -> Device:
        if not isinstance(kind, str):
            raise DeviceTypeError(
                f"{shortened(kind)} is not a kind of device; write Device('gpu', 1), Device('gpu:1')"
            )
        if index is None:
            return parse(kind)
        return _device(own_kind(kind), check_index(index))

    def __repr__(self) -> str:
        plain = f"Device('{self.kind}:{self.index}')"
        return f"<virtual {plain}>" if self.kind == "gpu" and _VIRTUAL in _GPU_WORDS else plain

    def _repr_html_(self) -> str:  # notebooks show it
        label = " <em>(virtual)</em>" if repr(self).startswith("<virtual") else ""
        return f"<code>{self}</code>{label}"

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> tuple[type[Device], tuple[str, int]]:
        return Device, (self.kind, self.index)

    def __copy__(self, memo: object = None) -> Device:
        return self

    __deepcopy__ = __copy__

    def __setattr__(self, name: str, value: object) -> None:
        from dataclasses import FrozenInstanceError  # loads `inspect`: only when it is needed

        raise FrozenInstanceError(f"cannot set {name!r}: a Device never changes; build another one")

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Device):
            return False  # equal devices are one object
        try:
            named = parse(other) if isinstance(other, str) else None
            if named is None or is_own_word(named):
                named = hooks.device_named(other) or named
        except XDeviceError:  # malformed, or of a framework that cannot be used
            return NotImplemented
        return NotImplemented if named is None else named is self

    def __hash__(self) -> int:  # in Python, so that compilers of Python code can trace it
        return hash((self.kind, self.index))

    def __lt__(self, other: object) -> bool:
        return self._key() < other._key() if isinstance(other, Device) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._key() <= other._key() if isinstance(other, Device) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self._key() > other._key() if isinstance(other, Device) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self._key() >= other._key() if isinstance(other, Device) else NotImplemented

    def _key(self) -> tuple[str, int]:
        return self.kind, self.index

    def __enter__(self) -> Device:
        hooks.enter_scope(self, self)
        return self

    def __exit__(self, *error: object) -> None:
        hooks.leave_scope(self, *error)


def parse(spelling: str) -> Device:
    """The device that a string names, in any framework's spelling."""
    found = _spelled.get(spelling)
    if found is not None:
        return found
    # setdefault: two threads that parse at once agree on one object
    return _spelled.setdefault(spelling, _device(*_typed(spelling)))


@constant
def _typed(spelling: str) -> tuple[str, int]:
    kind, index = _read(spelling)
    _check_meant(kind, spelling)
    return kind, index


@constant
def _read(spelling: str) -> tuple[str, int]:
    if not _patterns:
        import re  # 5 ms on a bare interpreter: not at import

        _patterns.extend(re.compile(p, re.IGNORECASE | re.ASCII) for p in _SPELLINGS)
    match = next(filter(None, (pattern.fullmatch(spelling) for pattern in _patterns)), None)
    if match is None:
        known = "'cpu', 'gpu', 'gpu:1' or any framework's spelling of these"
        raise DeviceSpellingError(f"{shortened(spelling)} is not a device; write {known}")
    digits = match["index"] or "0"
    if len(digits) > 10 or int(digits) > MAX_INDEX:
        raise DeviceSpellingError(_too_large(f"the index of {shortened(spelling)}"))
    return _kind(match["kind"]), int(digits)


def as_kind(word: str) -> str:
    """The kind behind a framework's word for it: ``CUDA`` and ``mps`` are ``gpu``; a misspelt word is an error."""
    kind = own_kind(word)
    _check_meant(kind, word)
    return kind


def own_kind(word: str) -> str:
    """The same for a word that need not be spelt like others: a framework may call its devices ``igpu``."""
    if not isinstance(word, str):
        raise DeviceTypeError(f"{shortened(word)} is not a kind of device; write 'cpu' or 'gpu'")
    kind = _kind(word)
    if kind not in _COMMON and _read(word) != (kind, 0):
        raise DeviceSpellingError(
            f"{shortened(word)} is not a kind of device; write 'cpu' or 'gpu'"
        )
    return kind


def check_index(index: Any) -> int:
    """The index as an int, if it can be one of a device."""
    number = as_integer(index)
    if number is None:
        raise DeviceTypeError(
            f"device index {shortened(index)} is not an integer; write gpu(0), gpu(1), …"
        )
    if number < 0:
        raise DeviceSpellingError(
            f"device index {shortened(number)} is negative; write gpu(0) for the first GPU"
        )
    if number > MAX_INDEX:
        raise DeviceSpellingError(_too_large(f"device index {shortened(number)}"))
    return number


def name_virtual(there: bool = True) -> None:
    """From now on ``vgpu`` is a word for a GPU, and the repr of one says that it is virtual."""
    for spelling in [s for s in _spelled if _VIRTUAL in s.lower()]:
        del _spelled[spelling]
    _GPU_WORDS.add(_VIRTUAL) if there else _GPU_WORDS.discard(_VIRTUAL)


def spell(device: Device, spellings: Iterable[str]) -> None:
    """From now on these strings mean the device: the names that one framework gives to a virtual GPU."""
    _spelled.update(dict.fromkeys(spellings, device))


def is_own_word(device: Device) -> bool:
    """Whether the kind is a word that one framework alone may know, which may use it for a GPU."""
    return device.kind not in _COMMON


def as_integer(value: Any) -> int | None:
    """The integer that the value is, if it is one; ``True`` and ``1.0`` are not."""
    if isinstance(value, bool):
        return None
    try:
        return _index(value)
    except TypeError:
        return None


def whole_number(value: Any, message: str, least: int = 0, end: float = float("inf")) -> int:
    """The integer that the value is, if it is one from ``least`` to below ``end``; else an error with that message."""
    number = as_integer(value)
    if number is None or not least <= number < end:
        raise (ArgumentTypeError if number is None else ArgumentError)(message)
    return number


def _kind(word: str) -> str:
    word = word.lower()
    return "gpu" if word in _GPU_WORDS else word


def _check_meant(kind: str, spelling: str) -> None:
    """Raise if the kind is nearly a known word, and so misspelt, unless a device of it has been made."""
    if (
        kind in _COMMON
        or kind in _OWN
        or len(kind) < 3
        or any(kind == made for made, _ in list(_devices))
    ):
        return
    meant = did_you_mean(kind, sorted(_COMMON | _GPU_WORDS), "", least=0.8)
    if meant:
        raise DeviceSpellingError(f"{shortened(spelling)} names an unknown kind of device; {meant}")


def _too_large(what: str) -> str:
    return (
        f"{what} is over {MAX_INDEX}, the largest that a device can have; write gpu(0), gpu(1), …"
    )


def _device(kind: str, index: int) -> Device:
    found = _devices.get((kind, index))
    if found is None:
        new = object.__new__(Device)
        object.__setattr__(new, "kind", kind)
        object.__setattr__(new, "index", index)
        found = _devices.setdefault((kind, index), new)
    return found
