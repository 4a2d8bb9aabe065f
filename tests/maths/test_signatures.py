"""What a type checker knows of a namespace is what the array API standard says."""

import inspect

import array_api_strict as strict
import pytest

from xdevice.tensors.namespace import CONSTANTS, DTYPE_NAMES, FFT, LINALG, NAMES
from xdevice.typing import FourierTransforms, LinearAlgebra, Namespace

OF_THE_IMPLEMENTATION = {"__version__", "ArrayAPIStrictFlags", "Device"}


def test_every_name_is_declared_and_no_other():
    theirs = {name for name in strict.__all__ if "strict_flags" not in name} - OF_THE_IMPLEMENTATION
    assert set(NAMES) == theirs
    assert set(LINALG) == {*strict.linalg.__all__, "eig", "eigvals"}
    assert set(FFT) == set(strict.fft.__all__)


FUNCTIONS = [
    *(
        (Namespace, name, strict)
        for name in NAMES
        if name not in (*CONSTANTS, *DTYPE_NAMES, "linalg", "fft")
    ),
    *((LinearAlgebra, name, strict.linalg) for name in LINALG),
    *((FourierTransforms, name, strict.fft) for name in FFT),
]


@pytest.mark.parametrize(
    ("protocol", "name", "home"), FUNCTIONS, ids=[f"{p.__name__}-{n}" for p, n, _ in FUNCTIONS]
)
def test_every_function_has_the_standards_parameters(protocol, name, home):
    _, *declared = inspect.signature(getattr(protocol, name)).parameters.values()
    expected = inspect.signature(getattr(home, name)).parameters.values()
    assert [(p.name, p.kind) for p in declared] == [(p.name, p.kind) for p in expected]
    assert [p.default is p.empty for p in declared] == [p.default is p.empty for p in expected]
