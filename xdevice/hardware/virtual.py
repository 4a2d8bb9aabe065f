"""The door to virtual GPUs, which the package `xdevice.virtual` provides.

To the core, a virtual GPU is a device of the kind ``gpu``, of a framework in
`virtual_counts`. The adapter counts it, and moves tensors to it, as it does
with a real one. The functions of `Provider` make virtual GPUs, and serve
`properties`, copies that take time, and errors.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Protocol, cast

from xdevice.contract import Stream
from xdevice.device import Device
from xdevice.errors import NotSupportedError
from xdevice.framework.adapters import Backend, before_loading

__all__ = ["virtual_gpus"]

GROUP = "xdevice.virtual_gpus"  # the entry-point group of the frameworks that can have them
ENV = "XDEVICE_VIRTUAL_GPUS"
_PACKAGE = "xdevice.virtual"  # imported by nothing but `provider`

virtual_counts: dict[Backend, int] = {}
"""The number of virtual GPUs of each framework that has them.

The package that provides virtual GPUs adds a framework when it gets them.
"""


class Provider(Protocol):
    """What the core asks of the package that provides virtual GPUs. Tools import it themselves."""

    def virtual_gpus(
        self, n: int, *, force: bool, stand_in: bool, model: str | None
    ) -> list[Device]: ...
    def apply_environment(self) -> None:
        """Make the virtual GPUs that `ENV` requests at each framework's import, in children too."""

    def why_none(self, owner: Backend) -> str:
        """Why the framework cannot have those that are requested; empty if it can."""

    def name_of(self, device: Device) -> str:
        """The device's name, for its properties."""

    def stream(self, owner: Backend, device: Device) -> Stream | None:
        """A stream of copies that take time, if the device has a bus of its own."""


_provider: Provider | None = None


def provider() -> Provider:
    """The package that provides virtual GPUs, imported.

    It is imported by its name. To search the entry points for it would take
    each child process 20 ms.
    """
    global _provider
    if _provider is None:
        try:
            _provider = cast("Provider", import_module(_PACKAGE))
        except ModuleNotFoundError as error:
            if error.name != _PACKAGE:
                raise
            raise NotSupportedError(
                f"virtual GPUs are provided by the package {_PACKAGE}, which is not installed; "
                "install xdevice-tensors again, with all of its parts"
            ) from None
    return _provider


def virtual_gpus(
    n: int, *, force: bool = False, stand_in: bool = False, model: str | None = None
) -> list[Device]:
    """Let ``gpu:0`` … ``gpu:n-1`` be virtual GPUs in this process, and return them.

    They behave as GPUs of their own and are backed by host memory: for
    multi-device code on a machine without GPUs. The chosen framework gets them
    now, any other when xdevice first uses it. Call it before the framework has
    made its first tensor. The environment variable ``XDEVICE_VIRTUAL_GPUS=n``
    requests them for every framework that can have them.

    Parameters
    ----------
    n
        How many, 1 to 64. A second call with the same number does nothing.
    force
        Hide real GPUs, if there are any.
    stand_in
        Give them the framework's own names for its GPUs, too, so that a program
        for real GPUs runs unedited. One line on stderr says so. The environment
        variable for that is ``XDEVICE_VIRTUAL_GPUS=n:stand-in``.
    model
        The model of GPU that they are while they stand in: ``"h100"``,
        ``"a100"``, ``"v100"``, ``"gb10"``, ``"rtx4090"``, ``"rtx3090"``, ``"a10g"``,
        ``"l4"`` or ``"t4"``. Under PyTorch their properties, memory and random numbers
        are that model's, and under PaddlePaddle random numbers. The
        environment variable for that is ``XDEVICE_VIRTUAL_GPUS=n:stand-in,model=t4``.

    Raises
    ------
    VirtualDeviceError
        The framework has been used already; there are real GPUs, and ``force``
        is not given; or this process has other virtual GPUs already.
    NotSupportedError
        The chosen framework, or this system, cannot have them.
    ArgumentError
        ``n`` is not an integer from 1 to 64, the model is not known, or the virtual GPUs do not stand in.

    Examples
    --------
    >>> import xdevice
    >>> xdevice.virtual_gpus(2)  # doctest: +SKIP
    [Device('gpu:0'), Device('gpu:1')]
    """
    return provider().virtual_gpus(n, force=force, stand_in=stand_in, model=model)


def apply_environment() -> None:
    """Do what `ENV` asks for. Without the package, print the error; using a framework raises it."""
    try:
        package = provider()
    except NotSupportedError as error:
        print(f"xdevice: {error}", file=sys.stderr)
        before_loading.append(_require_provider)
    else:
        package.apply_environment()


def _require_provider(owner: Backend, capability: str) -> None:
    """Raise an error before a framework is used without the virtual GPUs that were asked for."""
    provider()


def is_virtual(owner: Backend, device: Device) -> bool:
    return device.kind == "gpu" and owner in virtual_counts


def why_none(owner: Backend) -> str:
    """Why the framework has no virtual GPUs although they are requested; else empty.

    A request imports the provider, so without it there is none.
    """
    return "" if _provider is None else _provider.why_none(owner)


def stream_of(owner: Backend, device: Device) -> Stream | None:
    """A stream of copies that take time, if the device is virtual and has a bus of its own."""
    return None if _provider is None else _provider.stream(owner, device)
