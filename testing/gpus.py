"""The GPUs that a test needs, real or virtual."""

from typing import NamedTuple

import pytest

from xdevice import NotSupportedError, devices, properties
from xdevice.framework import choosing
from xdevice.testing import without_plug_in
from xdevice.testing.items import skip_or_fail


class _GPUs(NamedTuple):
    """The GPUs of the chosen framework, which are all real or all virtual."""

    number: int
    virtual: bool

    def __str__(self) -> str:
        if self.number == 0:
            return "none"
        if self.virtual:
            return f"{self.number} virtual"
        return f"{self.number} real"


def _gpus() -> _GPUs:
    gpus = devices("gpu")
    return _GPUs(len(gpus), bool(gpus) and properties(gpus[0])["virtual"])


def check_gpus(config: pytest.Config, number: int, *, real: bool) -> None:
    """Skip or fail the test unless the chosen framework has that many GPUs."""
    gpus = _gpus()
    if gpus.number >= number and not (real and gpus.virtual):
        return
    if real:
        requirement = "real GPU"
        hint = _hint_for_real(gpus)
    else:
        requirement = "GPU"
        hint = _hint_for_virtual(config, number, gpus)
    if number > 1:
        requirement += "s"
    skip_or_fail(config, f"needs {number} {requirement}, {choosing.backend()} sees {gpus}; {hint}")


def _hint_for_real(gpus: _GPUs) -> str:
    if gpus.virtual:
        return "virtual GPUs do not count"
    return "xdevice doctor says why a GPU is not seen"


def _hint_for_virtual(config: pytest.Config, number: int, gpus: _GPUs) -> str:
    """How the framework gets that many virtual GPUs, or why it cannot."""
    refusal = without_plug_in.refusal(config, choosing.backend())
    if refusal:
        return refusal
    try:
        _ = choosing.backend().virtual.enable
    except NotSupportedError as error:
        return str(error)
    command = f"pytest --xdevice-virtual-gpus={number}"
    if gpus.number and not gpus.virtual:
        command = f"CUDA_VISIBLE_DEVICES= {command}"
    return f"{command} gives it virtual ones"
