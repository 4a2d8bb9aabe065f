"""MXNet: the CPU, and CUDA GPUs. One CPU is counted, yet ``mx.cpu(1)`` holds arrays too, as ``cpu:1``.

Surprises: work is queued on the CPU as well, so an error may only be raised when a value is read or
waited for. Creating and copying scalars and empty arrays needs NumPy's shapes, which xdevice turns
on for the call alone: `mxnet.npx.set_np` remains the user's choice. xdevice makes ``mx.np`` arrays,
keeps whole numbers whole where MXNet makes floats of them, and moves Gluon parameters in place; a
``Trainer`` made before such a move must be made again.

MXNet 1.9.1 looks up names of NumPy before 1.24 at import. They are added to NumPy while MXNet is
imported, and NumPy 2's numbers are written for its library as NumPy 1's were. What it needs later
stays missing: with NumPy 2 ``mx.np.pad`` (``numpy.compat``) and some of the Gluon estimator's
handlers (``numpy.Inf``) fail.
"""

import builtins
import importlib
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from xdevice.backends.mxnet.private_names import TEXT


def _gone(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        "this NumPy no longer has the function behind this name; install numpy<1.20 for it"
    )


_LENT: dict[str, Any] = {  # names in NumPy before 1.24
    **dict.fromkeys(("Inf", "PINF"), np.inf),
    **dict.fromkeys(("NAN", "NaN"), np.nan),
    "NINF": -np.inf, "NZERO": -0.0, "PZERO": 0.0, "bool": builtins.bool, "in1d": np.isin, "round_": np.round,
    "alltrue": np.all, "sometrue": np.any, "product": np.prod, "msort": lambda a: np.sort(a, axis=0),
    "trapz": getattr(np, "trapezoid", _gone),  # NumPy 1 has no such name, and no need of it
    **dict.fromkeys(("mirr", "npv", "pmt", "ppmt", "pv", "rate"), _gone),  # moved to numpy-financial
}  # fmt: skip


@contextmanager
def _names_lent() -> Generator[list[str], None, None]:
    """Lend NumPy the names that MXNet 1.9.1 misses in it, and take back exactly these."""
    # apache/mxnet is archived: no release will mend this. What NumPy only answers with a warning
    # (`bool` in 1.23) is not in its namespace either, and is lent too.
    missing = [name for name in _LENT if name not in vars(np)]
    np.__dict__.update({name: _LENT[name] for name in missing})
    try:
        yield missing
    finally:
        for name in missing:
            if vars(np).get(name) is _LENT[name]:
                delattr(np, name)


with _names_lent(), warnings.catch_warnings():
    # MXNet 1.9.1 compares versions with distutils, which is deprecated
    warnings.filterwarnings("ignore", "(The )?distutils .* deprecated", DeprecationWarning)
    import mxnet as mxnet


class _AnyText(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, str)


class _Text(str, metaclass=_AnyText):
    """``str`` as MXNet's modules see it, by which they hand every argument of an operator to its library as text.

    The same, but for NumPy's numbers: NumPy 2 writes ``np.int64(2)`` for one in a tuple, where
    ``2`` is expected.
    """

    translated: Callable[[Any], Any]

    def __new__(cls, value: Any = "", *args: Any) -> Any:
        text = str(cls.translated(value), *args)
        return str(_plain(value)) if "np." in text else text


def translate(value_for: Callable[[Any], Any]) -> None:
    """Let MXNet write ``value_for(value)`` in place of a value."""
    _Text.translated = staticmethod(value_for)
    for name in TEXT:
        vars(importlib.import_module(f"mxnet.{name}"))["str"] = _Text


def _plain(value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


if str((np.int64(2),)) != "(2,)":
    translate(lambda value: value)

CANNOT: dict[str, str] = {
    "storage": "it is not needed: NumPy has all of MXNet's dtypes",
    "sharing": "its engine may still be writing to memory when a call has returned; leave copy out",
    "data": "every array is of numbers",
    **dict.fromkeys(
        ("fft", "eig", "eigvals"), "it has no complex numbers; take to_numpy(x) to NumPy's"
    ),
    "nextafter": "it has no operation on the bits of floats; take to_numpy(x) to NumPy's",
}
GPU_BUILD = "pip install mxnet-cu112 in place of mxnet"
