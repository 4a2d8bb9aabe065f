"""Operations, and dtypes of others, that have a kernel for the CPU and none for GPUs.

``cpu_only.txt`` is from ``kernels.get_all_registered_kernels()`` of TensorFlow's wheel with CUDA, 2.21.0 for Linux, by
``tests/virtual/tensorflow/kernels.py``. A line is an operation, and where only some dtypes are missing, the attribute
that they are of. What GPUs compute in the host's memory, as most of 32-bit integers, is not in it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

_LINES = [line.split() for line in Path(__file__).with_name("cpu_only.txt").read_text().splitlines()]
_DTYPES: dict[str, dict[str, frozenset[tf.DType]]] = {line[0]: {} for line in _LINES}
for _operation, *_of in _LINES:
    if _of:
        _DTYPES[_operation][_of[0]] = frozenset(map(tf.as_dtype, _of[1:]))


def is_lacking(operation: str, arguments: Sequence[Any]) -> bool:
    """Whether GPUs lack the eager operation for its arguments: the inputs, then attributes by name."""
    dtypes = _DTYPES.get(operation)
    if not dtypes:
        return dtypes is not None
    typed, count = _inputs(operation)
    given = dict(zip(arguments[count::2], arguments[count + 1 :: 2], strict=False))
    for attribute, lacking in dtypes.items():
        asked = given.get(attribute)
        found = _dtype((arguments[i] for i in typed.get(attribute, ())), 0) if asked is None else tf.as_dtype(asked)
        if found in lacking:
            return True
    return False


def is_lacking_for(operation: str, attribute: Callable[[str], Any]) -> bool:
    """Whether GPUs lack the operation for its attributes, which are all known."""
    dtypes = _DTYPES.get(operation)
    return dtypes is not None and (not dtypes or any(tf.as_dtype(attribute(name)) in dtypes[name] for name in dtypes))


@cache
def _inputs(operation: str) -> tuple[dict[str, list[int]], int]:
    """The inputs whose dtype an attribute is, and the number of all."""
    definition: Any = op_def_registry.get(operation)
    typed: dict[str, list[int]] = {}
    for i, argument in enumerate(definition.input_arg):
        typed.setdefault(argument.type_attr or argument.type_list_attr, []).append(i)
    return typed, len(definition.input_arg)


def _dtype(values: Iterable[Any], depth: int) -> Any:
    """The dtype of the first tensor, or array; that of numbers where there is none."""
    plain = []
    for value in values:
        dtype = getattr(value, "dtype", None)
        if dtype is None and type(value) in (list, tuple) and depth < 1:
            dtype = _dtype(value, depth + 1)
        if dtype is not None:
            return tf.as_dtype(dtype)
        plain.append(value)
    return tf.convert_to_tensor(plain[0]).dtype if plain and not depth else None
