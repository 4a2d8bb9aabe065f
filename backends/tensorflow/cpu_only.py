"""Operations, and dtypes of others, for which TensorFlow has kernels for the CPU only: text, images, sets, and others.

``cpu_only.txt`` is from ``kernels.get_all_registered_kernels()`` of TensorFlow's wheel with CUDA,
2.21.0 for Linux, by ``tests/virtual/tensorflow/kernels.py``. A line is an operation and, if only
some dtypes are missing, the attribute that has them. What GPUs compute in the host's memory, as
most of 32-bit integers, is not in it.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow.private_names import names

_definition: Any = names.value("tensorflow.python.framework.op_def_registry:get")

_CPU_ONLY: dict[str, dict[str, frozenset[tf.DType]]] = {}
for _line in Path(__file__).with_name("cpu_only.txt").read_text().splitlines():
    _operation, *_of = _line.split()
    _CPU_ONLY.setdefault(_operation, {}).update(
        {_of[0]: frozenset(map(tf.as_dtype, _of[1:]))} if _of else {}
    )


def is_lacking(operation: str, arguments: Sequence[Any]) -> bool:
    """Whether GPUs lack the eager operation for its arguments: the inputs, then attributes by name."""
    dtypes = _CPU_ONLY.get(operation)
    if not dtypes:
        return dtypes is not None
    typed, count = _inputs(operation)
    given = dict(zip(arguments[count::2], arguments[count + 1 :: 2], strict=False))
    for attribute, lacking in dtypes.items():
        asked = given.get(attribute)
        found = (
            _dtype([arguments[i] for i in typed.get(attribute, ())])
            if asked is None
            else tf.as_dtype(asked)
        )
        if found in lacking:
            return True
    return False


def is_lacking_for(operation: str, attribute: Callable[[str], Any]) -> bool:
    """Whether GPUs lack the operation for its attributes, which are all known."""
    dtypes = _CPU_ONLY.get(operation)
    return dtypes is not None and (
        not dtypes or any(tf.as_dtype(attribute(name)) in dtypes[name] for name in dtypes)
    )


@cache
def _inputs(operation: str) -> tuple[dict[str, list[int]], int]:
    """The inputs whose dtype an attribute is, and the number of all."""
    definition: Any = _definition(operation)
    typed: dict[str, list[int]] = {}
    for i, argument in enumerate(definition.input_arg):
        typed.setdefault(argument.type_attr or argument.type_list_attr, []).append(i)
    return typed, len(definition.input_arg)


def _dtype(values: Sequence[Any]) -> Any:
    """The dtype of the first tensor, or array; that of numbers where there is none."""
    each = chain.from_iterable(
        value if type(value) in (list, tuple) else [value] for value in values
    )
    found = next(
        (dtype for value in each if (dtype := getattr(value, "dtype", None)) is not None), None
    )
    if found is not None:
        return tf.as_dtype(found)
    return tf.convert_to_tensor(values[0]).dtype if values else None
