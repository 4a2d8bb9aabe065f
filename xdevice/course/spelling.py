"""Texts of different frameworks, spelled alike: devices, and what tensors print beside numbers."""

from __future__ import annotations

import re

from xdevice.device import parse
from xdevice.errors import DeviceSpellingError

_DEVICE = re.compile(r"(?<![\w.-])[A-Za-z/][\w/:]*(?:\([^()\s]*\))?(?![\w-])")
# The parser of devices takes any word for a kind of device; in outputs, only these are.
_KINDS = frozenset({"cpu", "gpu", "tpu"})

_VALUE = r"""(?:'[^']*'|"[^"]*"|\[[^\]]*\]|\w*\([^()]*(?:\([^()]*\))?[^()]*\)|<[^>]*>|[\w.:]+)"""
_ABOUT_A_TENSOR = re.compile(
    rf",?\s*\b(?:shape|dtype|device|place|ctx|stop_gradient|requires_grad|grad_fn|trainable"
    rf"|weak_type|sharding|backend)={_VALUE}"
)
_FOOTER = re.compile(r"<\w+ [\dx]* ?@[^>]*>|(?<=\]) @\w+(?:[:(]\d+\)?)?")
"""What MXNet prints below an array: ``<NDArray 2x3 @cpu(0)>``, or ``@gpu(0)``."""


def with_devices_spelled_alike(text: str) -> str:
    """The text with every device in it spelled ``gpu:0``, whichever framework wrote it."""
    return _DEVICE.sub(lambda match: _respelled(match[0]), text)


def without_tensor_attributes(text: str) -> str:
    """The text without the dtype, shape, device and so on that a printed tensor has."""
    return _ABOUT_A_TENSOR.sub("", _FOOTER.sub("", text))


def _respelled(token: str) -> str:
    try:
        device = parse(token)
    except DeviceSpellingError:
        head, bracket, tail = token.partition("(")
        if not bracket:
            return token
        return _respelled(head) + bracket + with_devices_spelled_alike(tail)
    if device.kind not in _KINDS:
        return token
    return str(device)
