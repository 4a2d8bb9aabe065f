"""Arrays in parts, in one piece and added up, by MXNet.

`mx.np.split` and slices share memory with what they are taken from, where MXNet can.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate, pairwise
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import Parameter

from xdevice.backends.mxnet.hardware import gpus, replaced_gpus
from xdevice.backends.mxnet.placement import arrays
from xdevice.errors import ArgumentTypeError, NotSupportedError
from xdevice.kit.reducing import reduced

_ELEMENTWISE = {"sum": mx.np.add, "max": mx.np.maximum, "min": mx.np.minimum}


def kind(tensor: Any) -> str:
    if _is_sparse(tensor):
        raise ArgumentTypeError(f"a plain array is needed, and this is {_described(tensor)}")
    return _letter(arrays(tensor)[0])


def split(tensor: Any, sizes: Sequence[int]) -> list[Any]:
    if getattr(tensor, "stype", "") == "row_sparse":
        raise NotSupportedError(f"mxnet cannot split {_described(tensor)}")
    with plain():
        return [tensor[start:end] for start, end in cuts(sizes)]


def leaf(tensor: Any) -> Any:
    if isinstance(tensor, Parameter):
        return tensor  # its own `grad_req` says whether
    with plain():
        own = tensor.detach()
        if _letter(own) == "f":
            own.attach_grad()
    return own


def pack(tensors: Sequence[Any]) -> Any:
    with plain():
        flat = [dense(arrays(tensor)[0]).as_np_ndarray().reshape(-1) for tensor in tensors]
        if len(flat) == 1:
            return flat[0].copy()
        sizes = [len(part) for part in flat]
        vector = mx.np.empty(sum(sizes), dtype=flat[0].dtype, ctx=flat[0].ctx)
        for part, (start, end) in zip(flat, cuts(sizes), strict=True):
            if start < end:
                part.copyto(
                    vector[start:end]
                )  # a view: mx.np.concatenate copies one after the other, and more slowly
        return vector


def unpack(vector: Any, like: Sequence[Any]) -> list[Any]:
    sizes = [math.prod(tensor.shape) for tensor in like]
    with plain():
        parts = [
            vector[a:b].copy().reshape(tensor.shape)
            for (a, b), tensor in zip(cuts(sizes), like, strict=True)
        ]
    are_np = [isinstance(arrays(tensor)[0], mx.np.ndarray) for tensor in like]
    return [
        part if is_np else part.as_nd_ndarray() for part, is_np in zip(parts, are_np, strict=True)
    ]


def reduce(vectors: Sequence[Any], op: str, weights: Sequence[float] | None) -> Any:
    with plain():
        return reduced(vectors, _ELEMENTWISE[op], weights)


def threads() -> Callable[[], AbstractContextManager[Any]] | None:
    """NumPy's shapes and arrays, and what is recorded, are each thread's own settings."""
    if replaced_gpus.number or not gpus():
        return None  # all CPU contexts draw from one generator: a seed would not make threads' numbers repeatable
    util, recording, training = mx.util, autograd.is_recording(), autograd.is_training()
    shapes, arrays_of_np = util.is_np_shape(), util.is_np_array()

    @contextmanager
    def entered() -> Generator[None]:
        graph = autograd.record if recording else autograd.pause
        with util.np_shape(shapes), util.np_array(arrays_of_np), graph(training):
            yield

    return entered


def dense(array: Any) -> Any:
    """The array, or all numbers of one that is sparse, as the gradient of an embedding may be."""
    return array.tostype("default") if _is_sparse(array) else array


def _is_sparse(tensor: Any) -> bool:
    return getattr(tensor, "stype", "default") != "default"


def _described(tensor: Any) -> str:
    return f"a {tensor.stype} array; take its tostype('default') first"


def _letter(tensor: Any) -> str:
    letter = np.dtype(tensor.dtype).kind
    return letter if letter in "fiubc" else "O"


def cuts(sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Where each of the parts of these sizes begins and ends."""
    return pairwise(accumulate(sizes, initial=0))


@contextmanager
def plain() -> Generator[None]:
    """Outside any graph, and with scalars and empty arrays, which MXNet otherwise takes for unknown ones."""
    with mx.util.np_shape(True), autograd.pause(autograd.is_training()):
        yield
