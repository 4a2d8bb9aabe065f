"""The private names of TensorFlow that this adapter reads, or replaces for a while: see ``names.txt``."""

from typing import Any

from xdevice.kit.private_names import PrivateNames

LAST_TRIED = {"2.22.0rc0": "3.14", "2.21.0": "3.10 3.11 3.12 3.13"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

_homes = (
    *(
        "eager.context",
        "eager.core",
        "pywrap_tfe",
        "framework.ops",
        "framework.constant_op",
        "data.ops.iterator_ops",
    ),
    "eager.backprop",
)
names = PrivateNames(__file__, "tensorflow", "tensorflow", LAST_TRIED)
NAMES = names.of()
_modules: Any = [names.module(f"tensorflow.python.{home}") for home in _homes]
context, core, engine, ops, constants, iterators, backprop = _modules
unrecorded: Any = names.value(
    "tensorflow.python.eager.record:stop_recording"
)  # a block that the gradient tape does not see
runtime: Any = names.value(
    "tensorflow.python.eager.context:context"
)  # a function: the runtime, started or not
