"""The private names of TensorFlow that the adapter replaces or reads: see ``names.txt``."""

from typing import Any, TypeAlias

from xdevice.backends.kit.private_names import PrivateNames

Module: TypeAlias = Any  # a module of TensorFlow, whose private names have no types

LAST_TRIED = {"2.22.0rc0": "3.14", "2.21.0": "3.10 3.11 3.12 3.13"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

names = PrivateNames(__file__, "tensorflow", "tensorflow", LAST_TRIED)
NAMES = names.of()


def _module(path: str) -> Module:
    return names.module(f"tensorflow.python.{path}")


context = _module("eager.context")
core = _module("eager.core")
engine = _module("pywrap_tfe")
ops = _module("framework.ops")
constants = _module("framework.constant_op")
iterators = _module("data.ops.iterator_ops")
backprop = _module("eager.backprop")

# A function: a block whose operations are not recorded on the gradient tape
unrecorded: Any = names.value("tensorflow.python.eager.record:stop_recording")
# A function: the runtime, started or not
runtime: Any = names.value("tensorflow.python.eager.context:context")
