"""Texts of different frameworks, spelled alike: devices, dtypes, and the framework's own name."""

from __future__ import annotations

import re
from collections.abc import Callable

from xdevice.device import Device, parse
from xdevice.errors import DeviceSpellingError

# A word or a call; one pair of parentheses may stand inside those of the call.
_DEVICE = re.compile(r"(?<![\w.-])[A-Za-z/](?:[\w/:]*\w)?(?:\((?:[^()]|\([^()]*\))*\))?(?![\w-])")
# What frameworks print of a device that the parser of devices does not read.
_OTHER_FORMS = re.compile(
    r"(?:Logical|Physical)Device\(name='(?:/physical_device:|/device:)?(?P<tensorflow>\w+:\d+)'"
    r"[^()]*\)|<CUDA Device (?P<cupy>\d+)>"
)
# The parser of devices takes any word for a kind of device; in outputs, only these are.
_KINDS = frozenset({"cpu", "gpu", "tpu"})
_PROSE = re.compile(r"[A-Z]+|[Mm]etal|hip|rocm")  # "on the GPU", without an index

_DTYPE = re.compile(
    r"\b(?:torch|paddle|numpy|np|jnp|jax\.numpy|tf|mx)\.(?P<own>(?:bfloat|float|u?int|complex|bool)\d*)\b"
    r"|<dtype: '(?P<tensorflow>\w+)'>|\bdtype\('(?P<numpy>\w+)'\)"
    r"|<class '(?:\w+\.)*(?P<scalar>(?:bfloat|float|u?int|complex)\d+)'>"
)
_NAMES_OF_FRAMEWORKS = {
    "torch": "torch|pytorch",
    "tensorflow": "tensorflow|tf",
    "paddle": "paddle|paddlepaddle|飞桨",
    "mxnet": "mxnet|mx",
    "jax": "jax|jnp|flax",
}


def with_devices_spelled_alike(text: str, spell: Callable[[Device], str] = str) -> str:
    """The text with every device in it spelled ``gpu:0``, whichever framework wrote it."""
    text = _OTHER_FORMS.sub(lambda match: match["tensorflow"] or f"gpu:{match['cupy']}", text)
    return _DEVICE.sub(lambda match: _respelled(match[0], spell), text)


def with_dtypes_spelled_alike(text: str) -> str:
    """The text with every dtype in it spelled ``float32``."""
    return _DTYPE.sub(lambda match: next(filter(None, match.groups())), text)


def without_framework_name(text: str, framework: str) -> str:
    """The text with the framework's name, or that of a module of it, as ``FRAMEWORK``."""
    names = _NAMES_OF_FRAMEWORKS.get(framework)
    if names is None:
        return text
    return re.sub(rf"(?<![\w.])(?:{names})(?:\.\w+)*(?![\w(])", "FRAMEWORK", text, flags=re.I)


def _respelled(token: str, spell: Callable[[Device], str]) -> str:
    device = _device_named(token)
    if device is not None:
        return spell(device)
    head, bracket, tail = token.partition("(")
    if not bracket:
        return token
    return _respelled(head, spell) + bracket + with_devices_spelled_alike(tail, spell)


def _device_named(token: str) -> Device | None:
    if _PROSE.fullmatch(token):
        return None
    try:
        device = parse(token)
    except DeviceSpellingError:
        return None
    return device if device.kind in _KINDS else None
