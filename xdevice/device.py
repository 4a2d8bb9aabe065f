"""``Device``, the value: how it is spelt, compared and printed."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from functools import total_ordering
from typing import Any

from xdevice.errors import (
    DeviceSpellingError,
    DeviceTypeError,
    XDeviceError,
    did_you_mean,
    shortened,
)
from xdevice.integers import as_integer

__all__ = ["Device"]

MAX_INDEX = 2**31 - 1  # the largest index: DLPack's ``device_id`` is a signed 32-bit integer
_MAKERS_WORDS = frozenset({"cuda", "rocm", "hip", "mps", "metal", "xpu"})  # for a GPU
_GPU_WORDS = _MAKERS_WORDS | {"vgpu"}  # a virtual GPU, where PyTorch or PaddlePaddle names it
COMMON = frozenset({"cpu", "gpu", "tpu"})  # words that mean the same in every framework
_FRAMEWORK_WORDS = frozenset({"meta"})  # not misspelt: it is not "metal"

# The kind, and not a word that stands around it, as in ``Place(gpu:1)``, ``/task:0/gpu:1`` and
# ``TFRT_CPU_0``. array-api-strict's words end in digits.
_WORD = (
    r"(?P<kind>(?!(?:place|job|replica|task|device)\b|tfrt_)(?P<letters>[a-z]+(?:_[a-z]+)*)[0-9]*)"
)
_INDEX = r"(?P<index>0|[1-9][0-9]*)"
_JOB = r"(?:(?:/job:[a-z0-9_]+)?(?:/replica:\d+)?(?:/task:\d+)?/)?"
_SPELLINGS = [
    # gpu:1, cuda:1, /GPU:1, /device:GPU:1,
    # /job:localhost/replica:0/task:0/device:GPU:1
    rf"{_JOB}(?:device:)?{_WORD}(?::{_INDEX})?",
    rf"{_WORD}\({_INDEX}?\)",  # gpu(1), cpu()
    rf"place\({_WORD}(?::{_INDEX})?\)",  # Place(gpu:1)
    rf"device\(type='{_WORD}'(?:, index={_INDEX})?\)",  # device(type='cuda', index=1)
    rf"tfrt_{_WORD}_{_INDEX}",  # TFRT_CPU_0
    rf"{_WORD}device\(id={_INDEX}(?:, [^()]*(?:\([^()]*\)[^()]*)*)?\)",  # CudaDevice(id=1)
]
_PATTERNS = [re.compile(spelling, re.IGNORECASE | re.ASCII) for spelling in _SPELLINGS]

_devices: dict[tuple[str, int], Device] = {}  # all Devices: equal ones are the same object
_parsed: dict[str, Device] = {}  # each string parsed so far


@total_ordering
class Device:
    """A device: a kind and an index, such as ``gpu:1``.

    ``kind`` is ``cpu``, ``gpu`` (whatever the framework calls its GPU),
    ``tpu``, or the framework's own word. One that resembles a known word, as
    ``cdua`` does, is misspelt; ``npu`` is a word of its own. The index is always
    resolved, so ``gpu`` is ``gpu:0``. Any framework's spelling is accepted. There is one object per
    device, so comparing two devices compares identities.

    ``==`` with a string or a native device compares what they name; a
    malformed string is unequal. Their hashes differ: do not mix devices with
    strings or native devices in a set or as keys.

    A device can be built whether or not it exists; using one that does not
    exist raises `DeviceNotFoundError`. ``with device:`` is
    ``with scope(device):``.

    Raises
    ------
    DeviceSpellingError
        A malformed spelling, or an index that is negative or over
        ``2**31 - 1``.
    DeviceTypeError
        A kind that is not a string; an index that is not an integer (``True``
        and ``1.0`` are not).

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

    __slots__ = ("_hash", "index", "kind")
    __match_args__ = ("kind", "index")
    kind: str
    index: int
    _hash: int

    def __new__(cls, kind: str, index: int | None = None) -> Device:
        if not isinstance(kind, str):
            raise DeviceTypeError(
                f"{shortened(kind)} is not a kind of device; "
                "write Device('gpu', 1), Device('gpu:1')"
            )
        if index is None:
            return parse(kind)
        return _device(as_kind(kind), check_index(index))

    def __repr__(self) -> str:
        return f"Device('{self.kind}:{self.index}')"

    def _repr_html_(self) -> str:  # notebooks show it
        return f"<code>{self}</code>"

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> tuple[type[Device], tuple[str, int]]:
        return Device, (self.kind, self.index)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot set {name!r}: a Device never changes; build another one")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r}: a Device never changes")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Device):
            return False  # equal devices are one object
        try:
            device = parse(other) if isinstance(other, str) else None
            if device is None or not is_common(device):
                # upward, as in `__enter__`: the adapters know their frameworks' objects
                from xdevice.hardware import devices

                device = devices.device_named(other)
        except XDeviceError:  # malformed, or of a framework that cannot be used
            return NotImplemented
        return NotImplemented if device is None else device is self

    def __hash__(self) -> int:  # in Python, so that compilers of Python code can trace it
        return self._hash

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return (self.kind, self.index) < (other.kind, other.index)

    def __enter__(self) -> Device:
        # Upward, one of the exceptions in pyproject.toml: a device is a value, which the floors
        # above import, and needs them only when it opens a scope.
        from xdevice.hardware import scopes

        scopes.enter(self, self)
        return self

    def __exit__(self, *error: Any) -> None:
        from xdevice.hardware import scopes

        scopes.leave(self, error)


def parse(spelling: str) -> Device:
    """The device that a string names, in any framework's spelling."""
    device = _parsed.get(spelling)
    if device is None:
        device = _parsed[spelling] = _device(*_kind_and_index(spelling))
    return device


def _kind_and_index(spelling: str) -> tuple[str, int]:
    """The kind and the index, by the first of `_SPELLINGS` that fits.

    A kind that resembles a common word is misspelt, whoever has written it: a framework cannot
    have devices ``igpu``.
    """
    matches = (pattern.fullmatch(spelling) for pattern in _PATTERNS)
    match = next(filter(None, matches), None)
    if match is None:
        examples = "'cpu', 'gpu', 'gpu:1' or any framework's spelling of these"
        raise DeviceSpellingError(f"{shortened(spelling)} is not a device; write {examples}")
    glued = match["kind"].removeprefix(match["letters"])  # as in "gpu1"; other words end in digits
    if glued and _common_word(match["letters"]) in COMMON:
        meant = f"{match['letters']}:{glued}"
        raise DeviceSpellingError(f"{shortened(spelling)} is not a device; did you mean {meant!r}?")
    digits = match["index"] or "0"
    if len(digits) > 10 or int(digits) > MAX_INDEX:
        raise DeviceSpellingError(_too_large(f"the index of {shortened(spelling)}"))
    kind = _common_word(match["kind"])
    hint = _similar_word(kind)
    if hint:
        raise DeviceSpellingError(f"{shortened(spelling)} names an unknown kind of device; {hint}")
    return kind, int(digits)


def _common_word(word: str) -> str:
    """The word in lower case; ``gpu`` for each maker's word."""
    word = word.lower()
    return "gpu" if word in _GPU_WORDS else word


def _similar_word(kind: str) -> str:
    """A hint for a kind that is like a common word, and so misspelt; else empty."""
    letters = kind.rstrip("0123456789")
    if kind in COMMON or kind in _FRAMEWORK_WORDS or len(letters) < 3:
        return ""
    return did_you_mean(letters, sorted(COMMON | _MAKERS_WORDS), "", least=0.75)


def _too_large(index: str) -> str:
    limit = f"{MAX_INDEX}, the largest that a device can have"
    return f"{index} is over {limit}; write gpu(0), gpu(1), …"


def as_kind(word: str) -> str:
    """The kind that a framework's word means: ``CUDA`` and ``mps`` are ``gpu``.

    A word with more than a kind, such as ``gpu:1``, is an error.
    """
    if not isinstance(word, str):
        raise DeviceTypeError(f"{shortened(word)} is not a kind of device; write 'cpu' or 'gpu'")
    kind = _common_word(word)
    if kind not in COMMON and _kind_and_index(word) != (kind, 0):
        raise DeviceSpellingError(
            f"{shortened(word)} is not a kind of device; write 'cpu' or 'gpu'"
        )
    return kind


def check_index(index: object) -> int:
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


def is_common(device: Device) -> bool:
    """Whether its name means the same in every framework, as ``cpu:0`` and ``gpu:1`` do.

    A framework may use a word of its own, or the name of a second CPU, for a GPU.
    """
    return device.kind in COMMON and (device.kind != "cpu" or device.index == 0)


def _device(kind: str, index: int) -> Device:
    device = _devices.get((kind, index))
    if device is None:
        new_device = object.__new__(Device)
        object.__setattr__(new_device, "kind", kind)
        object.__setattr__(new_device, "index", index)
        object.__setattr__(new_device, "_hash", hash((kind, index)))
        device = _devices.setdefault((kind, index), new_device)
    return device
