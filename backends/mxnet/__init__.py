"""MXNet: the CPU, and CUDA GPUs.

One CPU is counted, but ``mx.cpu(1)`` holds arrays too, as ``cpu:1``.

Notes: work is queued on the CPU as well, so an error may only be raised when a
value is read or waited for. Creating and copying scalars and empty arrays
needs NumPy's shapes, which xdevice turns on for the call alone:
`mxnet.npx.set_np` remains the user's choice. xdevice makes ``mx.np`` arrays,
keeps integers where MXNet makes floats of them, and moves Gluon parameters in
place; a ``Trainer`` made before such a move must be made again.

MXNet 1.9.1 looks up names of NumPy before 1.24 at import. They are added to
NumPy while MXNet is imported, and numbers of NumPy 2 are written for MXNet's
library as NumPy 1 wrote them. Names that MXNet needs later stay missing: with
NumPy 2 ``mx.np.pad`` (``numpy.compat``) and some handlers of the Gluon
estimator (``numpy.Inf``) fail.
"""

import builtins
import importlib
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

import numpy as np

from xdevice.backends.mxnet.private_names import TEXT

Argument: TypeAlias = Any  # of an operator, before MXNet writes it as text


def _removed_function(*args: object, **kwargs: object) -> NoReturn:
    raise NotImplementedError(
        "this NumPy no longer has the function behind this name; install numpy<1.20 for it"
    )


# Names in NumPy before 1.24
_REMOVED_NAMES: dict[str, object] = {
    "Inf": np.inf,
    "PINF": np.inf,
    "NINF": -np.inf,
    "NAN": np.nan,
    "NaN": np.nan,
    "NZERO": -0.0,
    "PZERO": 0.0,
    "bool": builtins.bool,
    "in1d": np.isin,
    "round_": np.round,
    "alltrue": np.all,
    "sometrue": np.any,
    "product": np.prod,
    "msort": lambda a: np.sort(a, axis=0),
    # NumPy 1 has `trapz` itself, and no `trapezoid`
    "trapz": getattr(np, "trapezoid", _removed_function),
    # moved to numpy-financial
    **dict.fromkeys(("mirr", "npv", "pmt", "ppmt", "pv", "rate"), _removed_function),
}


@contextmanager
def _with_removed_names() -> Generator[list[str]]:
    """A block in which NumPy has the names that MXNet 1.9.1 needs; the value is the names added.

    apache/mxnet is archived: no release will change this.
    """
    # names for which NumPy warns (`bool` in 1.23) are not in its namespace, and are added too
    missing = [name for name in _REMOVED_NAMES if name not in vars(np)]
    vars(np).update({name: _REMOVED_NAMES[name] for name in missing})
    try:
        yield missing
    finally:
        for name in missing:
            if vars(np).get(name) is _REMOVED_NAMES[name]:
                delattr(np, name)


with _with_removed_names(), warnings.catch_warnings():
    # MXNet 1.9.1 compares versions with distutils, which is deprecated
    warnings.filterwarnings("ignore", "(The )?distutils .* deprecated", DeprecationWarning)
    import mxnet as mxnet


class _AnyText(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, str)


class _Text(str, metaclass=_AnyText):
    """``str`` in MXNet's modules, which pass each argument of an operator to the library as text.

    It differs from ``str`` for numbers of NumPy in a tuple: NumPy 2 writes ``np.int64(2)``, and the
    library expects ``2``.
    """

    translated: Callable[[Argument], Argument]

    def __new__(cls, value: Argument = "", *args: Any) -> Any:
        text = str(cls.translated(value), *args)
        if "np." in text:
            return str(_with_python_numbers(value))
        return text


def translate(value_for: Callable[[Argument], Argument]) -> None:
    """Let MXNet write ``value_for(value)`` in place of a value."""
    _Text.translated = staticmethod(value_for)
    for name in TEXT:
        vars(importlib.import_module(f"mxnet.{name}"))["str"] = _Text


def _with_python_numbers(value: Argument) -> Argument:
    if type(value) in (tuple, list):
        return type(value)(map(_with_python_numbers, value))
    if isinstance(value, np.generic):
        return value.item()
    return value


if str((np.int64(2),)) != "(2,)":
    translate(lambda value: value)

CANNOT: dict[str, str] = {
    "numerics": "TF32 can be left out before the import only, by NVIDIA_TF32_OVERRIDE=0",
    "storage": "it is not needed: NumPy has all of MXNet's dtypes",
    **dict.fromkeys(
        ("export", "adopt"),
        "its engine may still be writing to memory when a call has returned; leave copy out",
    ),
    "is_data": "every array is of numbers",
    **dict.fromkeys(
        ("fft", "eig", "eigvals"), "it has no complex numbers; take to_numpy(x) to NumPy's"
    ),
    "nextafter": "it has no operation on the bits of floats; take to_numpy(x) to NumPy's",
}
GPU_BUILD = "pip install mxnet-cu112 in place of mxnet"
