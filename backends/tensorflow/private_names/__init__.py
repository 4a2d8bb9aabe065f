"""The private names of TensorFlow that this adapter replaces or reads: see ``names.txt``."""

from functools import partial
from importlib import import_module
from typing import Any

from xdevice.kit import private_names

LAST_TRIED = "2.21.0"

context: Any = import_module("tensorflow.python.eager.context")
engine: Any = import_module("tensorflow.python.pywrap_tfe")
ops: Any = import_module("tensorflow.python.framework.ops")

_lists = private_names.listed(__file__)
VIRTUAL, STAND_IN = _lists["VIRTUAL"], _lists["STAND_IN"]
NAMES = [*dict.fromkeys((*VIRTUAL, *STAND_IN, *_lists["OTHERS"]))]

in_place_of = partial(private_names.in_place_of, NAMES)
