"""What a cell prints, as values: numbers, truth values and devices, in whichever words.

What a printed tensor says of itself beside its numbers (shape, dtype, place) is
no value. Where it is counts only if both frameworks print it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from xdevice.device import Device
from xdevice.tools.course.compare import plain
from xdevice.tools.course.outcomes import Outcome
from xdevice.tools.course.series import Series, are_comparable, series_of
from xdevice.tools.course.spelling import (
    with_devices_spelled_alike,
    with_dtypes_spelled_alike,
    without_framework_name,
)

_VALUE = r"""(?:'[^']*'|"[^"]*"|\[[^\]]*\]|\w*\([^()]*(?:\([^()]*\))?[^()]*\)|<[^>]*>|[\w.:]+)"""
_ABOUT_A_TENSOR = re.compile(
    rf",?\s*\b(?:shape|dtype|device|place|ctx|stop_gradient|requires_grad|grad_fn|trainable"
    rf"|weak_type|sharding|backend|layout|memory_kind)={_VALUE}"
    r"|\bpath=[\w/-]+"  # of a variable of Keras
    r"|<\w+ [\dx]* ?@[^>]*>|(?<=[\]\d.]) @\w+"  # of MXNet: <NDArray 2x3 @cpu(0)>, or @gpu(0)
    r"|(?<=<tf\.Variable) '[^']*'"  # its name
)
_DEVICE = re.compile(r"\b(cpu|gpu|tpu)_(\d+)\b")
_QUOTED_DEVICE = re.compile(r"""(['"])((?:cpu|gpu|tpu)_\d+)\1""")
_LISTED = 4  # truth values, or devices, that are listed
_ADDRESS = re.compile(r"\b0x\d+\b")


class Values(NamedTuple):
    """What a cell prints, in a form in which frameworks can be compared."""

    text: str  # all of it, with devices, dtypes and the framework's name spelled alike
    series: list[Series]  # the numbers, and the curves that it draws
    truths: list[str]
    devices: list[str]
    places: list[str]  # of the tensors that say where they are

    @property
    def are_none(self) -> bool:
        return not (self.series or self.truths or self.devices)


def values_of(outcome: Outcome, framework: str) -> Values:
    """What the cell has printed under the framework."""
    text = with_devices_spelled_alike(plain(outcome.text), _as_word)
    text = _QUOTED_DEVICE.sub(r"\2", with_dtypes_spelled_alike(text))
    bare_text = _ADDRESS.sub("address", _ABOUT_A_TENSOR.sub("", text))
    attributes = " ".join(_ABOUT_A_TENSOR.findall(text))
    return Values(
        without_framework_name(text, framework),
        series_of(bare_text, outcome.curves),
        truths=re.findall(r"\b(?:True|False)\b", bare_text),
        devices=_devices_in(bare_text),
        places=_devices_in(attributes),
    )


def cannot_be_compared(first: Values, second: Values) -> str:
    """Why their numbers cannot be compared one by one; the empty text if they can be."""
    if bool(first.text) != bool(second.text):
        return "one prints nothing"
    if first.truths != second.truths:
        return _in_words("truth values", first.truths, second.truths)
    if first.devices != second.devices:
        return _in_words("devices", first.devices, second.devices)
    if not are_comparable(first.series, second.series):
        return f"{len(first.series)} and {len(second.series)} numbers and curves"
    if first.places and second.places:
        # PyTorch does not print the place of a tensor on the CPU
        gpus = [[place for place in each.places if place != "cpu:0"] for each in (first, second)]
        if gpus[0] != gpus[1]:
            return _in_words("tensors on", first.places, second.places)
    return ""


def _as_word(device: Device) -> str:
    """The device as a word that has no number of its own."""
    return f"{device.kind}_{device.index}"


def _devices_in(text: str) -> list[str]:
    return [f"{kind}:{index}" for kind, index in _DEVICE.findall(text)]


def _in_words(noun: str, first: list[str], second: list[str]) -> str:
    return f"{noun} {_listed(first)} and {_listed(second)}"


def _listed(words: list[str]) -> str:
    if not words:
        return "none"
    return ", ".join([*words[:_LISTED], *["…"] * (len(words) > _LISTED)])
