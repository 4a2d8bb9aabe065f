"""What a test runs with: frameworks, their devices, and the dtypes that a device has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import product, starmap
from typing import NamedTuple

import pytest

from xdevice import (
    ArgumentError,
    Device,
    MisplacedError,
    NotSupportedError,
    XDeviceError,
    as_device,
    devices,
    ones,
    using,
)
from xdevice.errors import did_you_mean
from xdevice.tensors.namespace import DTYPE_NAMES, DTYPES
from xdevice.testing import without_plug_in
from xdevice.testing.compilers import compilers_of
from xdevice.testing.determinism import comparable
from xdevice.testing.frameworks import backends_of, names_in_ini, why_unusable

_KINDS = {
    **DTYPES,
    "integral": DTYPES["signed integer"] + DTYPES["unsigned integer"],
    "numeric": tuple(name for name in DTYPE_NAMES if name != "bool"),
    "all": DTYPE_NAMES,
}
_USUAL_DTYPES = "real floating"
_SHORT_DTYPES = ("float16", "bfloat16")  # which the standard lacks


def add_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--xdevice-devices",
        metavar="DEVICES",
        default="two",
        help="devices of the fixture `device`: two of each kind (two, the default), all, or a "
        "list: cpu, gpu, gpu:1; a test whose framework lacks a listed device is skipped",
    )
    group.addoption(
        "--xdevice-dtypes",
        metavar="DTYPES",
        default=_USUAL_DTYPES,
        help="dtypes of the fixture `dtype`: names (float32,float16), kinds of the array API "
        "standard ('integral', ...; the default is 'real floating'), or all; of a kind, those "
        "that the device has; a test whose device lacks a named dtype is skipped",
    )


class Parameters(NamedTuple):
    """A test's parameters; the empty string for one that the test does not take."""

    backend: str
    device: str = ""
    dtype: str = ""
    compiled: str = ""  # the name of the compiler

    @property
    def test_id(self) -> str:
        compiled = self.compiled and f"compiled-{self.compiled}"
        return "-".join(filter(None, (*self[:3], compiled)))


def combinations(
    config: pytest.Config, names: Iterable[str], fixtures: Collection[str]
) -> list[Parameters]:
    """Each framework, with each of its devices and so on, as the test's fixtures need them."""
    found: list[Parameters] = []
    for name in names:
        places, compilers = [""], [""]
        if "xdevice_device" in fixtures:
            places = _devices_of(config, name)
        if "xdevice_compiled" in fixtures:
            compilers = compilers_of(config, name)
        for place in places:
            dtypes = [""]
            if "xdevice_dtype" in fixtures:
                with comparable(config, fixtures, name):
                    dtypes = _dtypes_of(config, name, place)
            found += starmap(Parameters, product([name], [place], dtypes, compilers))
    return found


def tested_backends(config: pytest.Config) -> list[str]:
    """The selected frameworks.

    If one has no device, each file that needs a framework reports an error.
    """
    names = backends_of(config)
    without_plug_in.go_without(config, names)
    for name in names:
        reason = why_unusable(name)
        if reason:
            raise pytest.Collector.CollectError(reason)
    return names


def missing_device(device: Device) -> str | None:
    """Why the chosen framework lacks the device; ``None`` if it has it."""
    there = devices()
    if device in there:
        return None
    listed = ", ".join(map(str, there)) or "none"
    return f"needs {device}, and the framework's devices are {listed}"


def missing_dtype(name: str, device: Device | None) -> str | None:
    """Why the chosen framework lacks the dtype on the device; ``None`` if it has it."""
    if _has_dtype(name, device):
        return None
    place = "its default device" if device is None else str(device)
    return f"needs {name}, which the framework does not have on {place}"


def check_options(config: pytest.Config) -> None:
    """`pytest.UsageError` for a word that is not a device, a dtype or a framework."""
    _requested_devices(config)
    for option in ("xdevice_backends", "xdevice_scoped_backends"):
        names_in_ini(config, option)
    for word in _words(config, "--xdevice-dtypes"):
        if word not in (*_KINDS, *DTYPE_NAMES, *_SHORT_DTYPES):
            options = (*DTYPE_NAMES, *_SHORT_DTYPES, *_KINDS)
            otherwise = f"there are {', '.join(options)}"
            hint = did_you_mean(word, options, otherwise)
            raise pytest.UsageError(
                f"--xdevice-dtypes={config.getoption('--xdevice-dtypes')}: "
                f"{word!r} is not a dtype or a kind of dtypes; {hint}"
            )


def _words(config: pytest.Config, option: str) -> list[str]:
    value: str = config.getoption(option)
    return list(dict.fromkeys(filter(None, map(str.strip, value.split(",")))))


def _devices_of(config: pytest.Config, name: str) -> list[str]:
    """The selected devices of a framework; the fixture raises the error if it cannot list them."""
    try:
        with using(name):
            there = devices()
    except XDeviceError:
        return [""]
    requested = _requested_devices(config)
    if requested == "all":
        return list(map(str, there))
    if requested == "two":
        return list(map(str, two_of_each_kind(there)))
    selected: dict[str, None] = {}
    for word in requested:
        if isinstance(word, Device):
            selected[str(word)] = None
        else:
            of_kind = [device for device in there if device.kind == word]
            selected.update(dict.fromkeys(map(str, two_of_each_kind(of_kind))))
            if not of_kind:
                selected[f"{word}:0"] = None
    return list(selected)


def two_of_each_kind(places: Iterable[Device]) -> list[Device]:
    """The first two devices of each kind: one of them is not the framework's default."""
    counts = Counter[str]()
    selected: list[Device] = []
    for device in places:
        counts[device.kind] += 1
        if counts[device.kind] <= 2:
            selected.append(device)
    return selected


def _requested_devices(config: pytest.Config) -> str | list[str | Device]:
    """``two``, ``all``, or a list of kinds and of devices."""
    words = _words(config, "--xdevice-devices")
    if words in (["two"], ["all"]):
        return words[0]
    requested: list[str | Device] = []
    for word in words:
        try:
            device = as_device(word)
        except XDeviceError as error:
            raise pytest.UsageError(
                f"--xdevice-devices={config.getoption('--xdevice-devices')}: {error}; "
                "give two, all, or a list as cpu,gpu:1"
            ) from None
        requested.append(device if word[-1].isdigit() else device.kind)
    if not requested:
        raise pytest.UsageError("--xdevice-devices names no device; give two, all, or cpu,gpu:1")
    return requested


def _dtypes_of(config: pytest.Config, name: str, place: str) -> list[str]:
    """The named dtypes, and of the named kinds those that the device has."""
    selected: dict[str, None] = {}
    device = Device(place) if place else None
    for word in _words(config, "--xdevice-dtypes"):
        if word not in _KINDS or word == "bool":
            selected[word] = None
            continue
        try:
            with using(name):
                there = [dtype for dtype in _KINDS[word] if _has_dtype(dtype, device)]
        except XDeviceError:  # the fixture raises it again
            there = [""]
        selected.update(dict.fromkeys(there))
    return list(selected)


def _has_dtype(name: str, device: Device | None) -> bool:
    """Whether a tensor there can have the dtype.

    It is tried with one number: some frameworks make an empty tensor of any dtype.
    """
    try:
        ones(1, dtype=name, device=device)
    except (ArgumentError, MisplacedError, NotSupportedError):
        return False
    return True
