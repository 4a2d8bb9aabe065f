"""The private names of TensorFlow that this adapter replaces or reads: see ``names.txt``."""

from functools import partial
from importlib import import_module
from typing import Any

from xdevice.kit import private_names

LAST_TRIED = "2.21.0"

_homes = "eager.context eager.core pywrap_tfe framework.ops framework.constant_op data.ops.iterator_ops eager.backprop"
_modules: Any = [import_module(f"tensorflow.python.{home}") for home in _homes.split()]
context, core, engine, ops, constants, iterators, backprop = _modules

_lists = private_names.listed(__file__)
VIRTUAL, STAND_IN = _lists["VIRTUAL"], _lists["STAND_IN"]
NAMES = [*dict.fromkeys((*VIRTUAL, *STAND_IN, *_lists["OTHERS"]))]

in_place_of = partial(private_names.in_place_of, NAMES)
