"""Each function of a namespace does what the standard's reference implementation, array-api-strict, does.

Shapes, dtypes, axes and values are hypothesis's. What differs is in ``DIFFERENCES``, which docs/test/maths.md shows;
a difference that is gone must go from there too.
"""

from __future__ import annotations

import math
import re
from contextlib import nullcontext
from pathlib import Path

import array_api_strict as strict
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import xdevice
from xdevice.tensors.namespace import (
    CONSTANTS,
    DTYPE_NAMES,
    EXTENSIONS,
    FFT,
    LINALG,
    NAMES,
    namespace,
)

FLOATS, INTS = ("float32", "float64"), ("int32", "int64")
NARROW = ("int8", "int16", "uint8")
WHOLE = (*INTS, *NARROW)
COMPLEX = ("complex64", "complex128")
NUMBERS = FLOATS + WHOLE
ALL = (*NUMBERS, "bool")
BITS = (*WHOLE, "bool")
ANY = (*NUMBERS, *COMPLEX)
QUIET = settings(
    max_examples=min(12, settings.default.max_examples),  # a push has few
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
SOME = settings(QUIET, max_examples=min(5, settings.default.max_examples // 2))
"""For the dtypes that courses do not use."""

FEW = settings(QUIET, max_examples=3)
"""For JAX, which compiles each function anew for each shape; it is also spared half of the dtypes."""

SPECIAL = (math.nan, math.inf, -math.inf)
POOL = {
    "f": (-2.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 3.0),
    "i": (-3, -1, 0, 1, 2, 5),
    "u": (0, 1, 2, 5),
    "b": (False, True),
    "c": (0.5 + 0.25j, -1 + 2j, 0.75 - 1j, 1.0, 0.5j),
}

NORMS = ("backward", "ortho", "forward")
SUMS = ("cumulative_prod", "cumulative_sum", "prod", "sum", "linalg.trace")

# framework, function: the dtypes, and what is different
DIFFERENCES: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("torch", "can_cast"): (
        ("float64", "int32", "int64", "int16", "complex128"),
        "also to a narrower dtype of the same kind",
    ),
    ("paddle", "sqrt"): (("float32",), "of infinity among eight numbers or more it is nan"),
    ("jax", "searchsorted"): (("float32", "int64"), "the places are int32"),
    **{
        (name, sums): (("uint8",), "int64, not uint64")
        for name in ("torch", "paddle", "mxnet")
        for sums in SUMS
    },
}


class Draw:
    """The arguments of one call, drawn."""

    def __init__(self, data, dtype, known):
        self.data, self.dtype, self.known = data, dtype, known

    def __call__(self, strategy):
        return self.data.draw(strategy)

    def array(self, shape, pool=None, dtype=None):
        wanted = np.dtype(dtype or self.dtype)
        choice = np.random.default_rng(self(st.integers(0, 2**32 - 1))).choice
        return (
            np.asarray(choice(pool or POOL[wanted.kind], size=shape)).astype(wanted).reshape(shape)
        )

    def any_shape(self, least=0, side=0):
        return self(hnp.array_shapes(min_dims=least, max_dims=3, min_side=side, max_side=3))

    def axis(self, shape):
        return self(st.integers(-len(shape), len(shape) - 1))

    def axes(self, shape):
        """``axis=`` of a reduction, and ``keepdims=``."""
        options = [st.none()] + ([hnp.valid_tuple_axes(len(shape), min_size=1)] if shape else [])
        options += [st.integers(-len(shape), len(shape) - 1)] if shape else []
        return {"axis": self(st.one_of(options)), "keepdims": self(st.booleans())}

    def like(self):
        """A dtype of the same kind."""
        kinds = (FLOATS, ("int8", "int16", *INTS), ("uint8",), COMPLEX, ("bool",))
        alike = next(kind for kind in kinds if self.dtype in kind)
        return self(st.sampled_from([name for name in alike if name in self.known]))

    def pair(self, pool=None, second=None):
        shapes = self(
            hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3)
        ).input_shapes
        x2 = self.array(shapes[1], second or pool, self.like())
        if self(st.integers(0, 3)) == 0:
            x2 = self.array((), second or pool).item()  # one of Python's numbers
        return self.array(shapes[0], pool), x2


def one(draw, special=True):
    kind = np.dtype(draw.dtype).kind
    return (
        draw.array(draw.any_shape(), POOL[kind] + (SPECIAL if special and kind == "f" else ())),
    ), {}


def two(draw):
    kind = np.dtype(draw.dtype).kind
    return draw.pair(POOL[kind] + (SPECIAL if kind == "f" else ())), {}


def dividing(draw):
    kind = np.dtype(draw.dtype).kind
    return draw.pair(second=[v for v in POOL[kind] if v]), {}


def remaining(draw):
    kind = np.dtype(draw.dtype).kind
    return draw.pair(second=[v for v in POOL[kind] if v or kind == "f"]), {}


def power(draw):
    return draw.pair((0, 1, 2, 3), (0, 1, 2)), {}


def numbers_only(draw):
    return one(draw, special=False)


def reduction(draw, side=0, **more):
    shape = draw.any_shape(side=side)
    return (draw.array(shape),), draw.axes(shape) | more


def of_some(draw):
    return reduction(draw, side=1)


def spread(draw):
    shape = draw.any_shape(1, 2)
    return (draw.array(shape),), draw.axes(shape) | {
        "correction": draw(st.sampled_from([0, 0.0, 1, 1.0]))
    }


def running(draw):
    shape = draw.any_shape(1)
    return (draw.array(shape),), {"axis": draw.axis(shape), "include_initial": draw(st.booleans())}


def place(draw):
    shape = draw.any_shape(1, 1)
    axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    size = math.prod(shape)  # all different: which of two equal ones is told is open
    x = np.random.default_rng(size).permutation(size).astype(draw.dtype).reshape(shape)
    return (x,), {"axis": axis, "keepdims": draw(st.booleans())}


def order(draw):
    shape = draw.any_shape(1)
    return (draw.array(shape),), {"axis": draw.axis(shape), "descending": draw(st.booleans())}


def factory(draw):
    return (draw.any_shape(),), {"dtype": draw.dtype}


def like(draw):
    return (draw.array(draw.any_shape()),), {
        "dtype": draw(st.none() | st.sampled_from([name for name in ALL if name in draw.known]))
    }


def filled(draw):
    shape, value = draw.any_shape(), draw.array(()).item()
    return (shape, value), {"dtype": draw.dtype}


def filled_like(draw):
    return (draw.array(draw.any_shape()), draw.array(()).item()), {}


def counting(draw):
    least = 0 if draw.dtype == "uint8" else -3
    start, stop, step = (
        draw(st.integers(least, 3)),
        draw(st.integers(least, 6)),
        draw(st.sampled_from([1, 2, -1])),
    )
    return (start, stop, step), {"dtype": draw.dtype}


def spaced(draw):
    endpoint = draw(st.booleans())
    return (draw(st.integers(-3, 3)), draw(st.integers(-3, 6)), draw(st.integers(0, 5))), {
        "dtype": draw.dtype,
        "endpoint": endpoint,
    }


def diagonal(draw):
    rows, columns = draw(st.integers(0, 4)), draw(st.none() | st.integers(0, 4))
    return (rows, columns), {"k": draw(st.integers(-2, 2)), "dtype": draw.dtype}


def given_data(draw):
    return (draw.array(draw.any_shape()),), {"dtype": draw(st.sampled_from([draw.dtype, None]))}


def cast(draw):
    options = COMPLEX if draw.dtype in COMPLEX else NUMBERS
    wanted = draw(st.sampled_from([name for name in options if name in draw.known]))
    pool = [value for value in POOL[np.dtype(draw.dtype).kind] if wanted != "uint8" or value >= 0]
    return (draw.array(draw.any_shape(), pool), wanted), {}


def shared(draw):
    return (draw.array(draw.any_shape()),), {}


def triangle(draw):
    return (draw.array(draw.any_shape(2)),), {"k": draw(st.integers(-2, 2))}


def grid(draw):
    arrays = [draw.array((draw(st.integers(0, 3)),)) for _ in range(draw(st.integers(1, 3)))]
    return tuple(arrays), {"indexing": draw(st.sampled_from(["xy", "ij"]))}


def truths(draw):
    return draw.pair(), {}


def choice(draw):
    shapes = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3)
    ).input_shapes
    return (
        draw.array(shapes[0], dtype="bool"),
        draw.array(shapes[1]),
        draw.array(shapes[2], dtype=draw.like()),
    ), {}


def limits(draw):
    low = draw(st.none() | st.sampled_from([1, 0] if draw.dtype == "uint8" else [-1, 0]))
    return (draw.array(draw.any_shape()),), {
        "min": low,
        "max": draw(st.none() | st.sampled_from([1, 2])),
    }


def matrices(draw):
    n, m, k = (draw(st.integers(0, 3)) for _ in range(3))
    front = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=1, max_side=3)
    ).input_shapes
    left, right = draw(
        st.sampled_from([((n,), (n,)), ((m, n), (n,)), ((n,), (n, k)), ((m, n), (n, k))])
    )
    stacked = draw(st.booleans()) and len(left) == len(right) == 2
    return (
        draw.array(front[0] + left if stacked else left),
        draw.array(front[1] + right if stacked else right, dtype=draw.like()),
    ), {}


def contraction(draw):
    a, b, c, d = (draw(st.integers(0, 3)) for _ in range(4))
    shapes, axes = draw(
        st.sampled_from(
            [
                (((a, b, c), (b, c, d)), 2),
                (((a, b), (b, c)), 1),
                (((a,), (b, c)), 0),
                (((a, b, c), (c, d, a)), ([0, -1], [2, 0])),
            ]
        )
    )
    return (draw.array(shapes[0]), draw.array(shapes[1], dtype=draw.like())), {"axes": axes}


def dot(draw):
    shape = draw.any_shape(1)
    return (draw.array(shape), draw.array(shape)), {"axis": -draw(st.integers(1, len(shape)))}


def at_least(ndim):
    return lambda draw: ((draw.array(draw.any_shape(ndim)),), {})


def together(draw):
    shapes = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3)
    ).input_shapes
    return tuple(draw.array(shape) for shape in shapes), {}


def broadened(draw):
    shape = draw.any_shape()
    wide = draw(hnp.broadcastable_shapes(shape, min_side=0, max_dims=3, max_side=3))
    return (draw.array(shape), np.broadcast_shapes(shape, wide)), {}


def joined(draw):
    shape = draw.any_shape(1)
    axis = draw(st.none() | st.integers(-len(shape), len(shape) - 1))
    lengths = [draw(st.integers(0, 3)) for _ in range(3)]
    shapes = [
        shape if axis is None else [n if i == axis % len(shape) else s for i, s in enumerate(shape)]
        for n in lengths
    ]
    return ([draw.array(tuple(s), dtype=draw.like()) for s in shapes],), {"axis": axis}


def stacked(draw):
    shape = draw.any_shape()
    axis = draw(st.integers(-len(shape) - 1, len(shape)))
    return ([draw.array(shape, dtype=draw.like()) for _ in range(draw(st.integers(1, 3)))],), {
        "axis": axis
    }


def new_axis(draw):
    shape = draw.any_shape()
    return (draw.array(shape),), {"axis": draw(st.integers(-len(shape) - 1, len(shape)))}


def turned(draw):
    shape = draw.any_shape()
    axis = draw.axes(shape)["axis"]
    return (draw.array(shape),), {"axis": axis}


def axes_moved(draw):
    shape = draw.any_shape(1)
    count = draw(st.integers(1, len(shape)))
    some = st.permutations(range(len(shape))).map(lambda axes: tuple(axes[:count]))
    return (draw.array(shape), draw(some), draw(some)), {}


def permuted(draw):
    shape = draw.any_shape(1)
    return (draw.array(shape), tuple(draw(st.permutations(range(len(shape)))))), {}


def repeated(draw):
    shape = draw.any_shape(1)
    return (draw.array(shape), draw(st.integers(0, 3))), {
        "axis": draw(st.none() | st.just(draw.axis(shape)))
    }


def reshaped(draw):
    shape = draw.any_shape()
    size = math.prod(shape)
    shapes = [(size,), (1, size), tuple(reversed(shape))] + ([(-1,), (-1, 1)] if size else [])
    return (draw.array(shape), draw(st.sampled_from(shapes))), {}


def rolled(draw):
    shape = draw.any_shape()
    axis = draw.axes(shape)["axis"]
    shift = (
        tuple(draw(st.integers(-3, 3)) for _ in axis)
        if isinstance(axis, tuple)
        else draw(st.integers(-3, 3))
    )
    return (draw.array(shape), shift), {"axis": axis}


def squeezed(draw):
    shape = (1, *draw.any_shape(0)[:2], 1)
    return (draw.array(shape),), {"axis": draw(st.sampled_from([0, -1, (0, -1)]))}


def tiled(draw):
    return (draw.array(draw.any_shape()), tuple(draw(st.lists(st.integers(0, 2), max_size=4)))), {}


def along(draw):
    shape = draw.any_shape(1)
    return (draw.array(shape),), {"axis": draw.axis(shape)}


def taken(draw):
    shape = draw.any_shape(1, 1)
    axis = draw.axis(shape)
    return (
        draw.array(shape),
        draw.array((draw(st.integers(0, 4)),), range(shape[axis]), draw(st.sampled_from(INTS))),
    ), {"axis": axis}


def taken_along(draw):
    shape = draw.any_shape(1, 1)
    axis = draw.axis(shape)
    wanted = tuple(
        draw(st.integers(0, 4)) if i == axis % len(shape) else n for i, n in enumerate(shape)
    )
    return (
        draw.array(shape),
        draw.array(wanted, range(shape[axis]), draw(st.sampled_from(INTS))),
    ), {"axis": axis}


def searched(draw):
    ordered = np.sort(draw.array((draw(st.integers(0, 5)),)))
    return (ordered, draw.array(draw.any_shape(1))), {
        "side": draw(st.sampled_from(["left", "right"]))
    }


def inside(draw):
    """Numbers where inverse functions are defined and smooth."""
    return (draw.array(draw.any_shape(), (0.0, 0.25, 0.5, -0.5, 0.75, -0.25)),), {}


def above_one(draw):
    return (draw.array(draw.any_shape(), (1.0, 1.5, 2.0, 7.0)),), {}


def two_reals(draw):
    return draw.pair(POOL["f"] + (-0.0,)), {}


def shifted(draw):
    least = (0, 1, 2, 5) if draw.dtype == "uint8" else POOL["i"]
    shapes = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3)
    ).input_shapes
    return (draw.array(shapes[0], least), draw.array(shapes[1], (0, 1, 2, 3))), {}


def bits(draw):
    return draw.pair(), {}


def differing(draw):
    shape = draw.any_shape(1)
    axis = draw.axis(shape)
    one_thick = tuple(1 if i == axis % len(shape) else n for i, n in enumerate(shape))
    ends = {name: draw.array(one_thick) for name in ("prepend", "append") if draw(st.booleans())}
    return (draw.array(shape),), {"axis": axis, "n": draw(st.integers(0, 2))} | ends


def running_product(draw):
    shape = draw.any_shape(1)
    x = draw.array(shape, (1, 2, 0) if np.dtype(draw.dtype).kind in "iu" else (-1.0, 0.5, 2.0))
    return (x,), {"axis": draw.axis(shape), "include_initial": draw(st.booleans())}


def members(draw):
    return (
        draw.array(draw.any_shape()),
        draw.array(draw.any_shape()),
    ), {}  # array-api-strict 2.6.1 ignores invert


def shapes_only(draw):
    shapes = draw(
        hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3)
    ).input_shapes
    return tuple(shapes), {}


def is_of_kind(draw):
    kinds = (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
    )
    return (draw.dtype, draw(st.sampled_from([*kinds, kinds[:3], draw.dtype]))), {}


def two_dtypes(draw):
    return (draw.array((2,)) if draw(st.booleans()) else draw.dtype, draw.like()), {}


def about(draw):
    return (draw.dtype,), {}


def matrix(draw, square=True, special=None):
    """Matrices that are far from singular: their decompositions are known to many digits."""
    front = draw(hnp.array_shapes(min_dims=0, max_dims=1, max_side=2))
    rows = draw(st.integers(1, 3))
    columns = rows if square else draw(st.integers(1, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = random.uniform(-1, 1, (*front, rows, columns)) + 3 * np.eye(rows, columns)
    if draw.dtype in COMPLEX:
        x = x + 1j * random.uniform(-1, 1, x.shape)
    if special == "definite":
        x = x @ np.conj(np.swapaxes(x, -1, -2))
    return x.astype(draw.dtype)


def of_square(draw):
    return (matrix(draw),), {}


def definite(draw):
    return (matrix(draw, special="definite"),), {}


def triangular(draw):
    return (matrix(draw, special="definite"),), {"upper": draw(st.booleans())}


def any_matrix(draw):
    return (matrix(draw, square=False),), {}


def tall_or_wide(draw):
    return (matrix(draw, square=False),), {"full_matrices": False}


def solved(draw):
    x = matrix(draw)
    return (x, draw.array((x.shape[-1], 2) if draw(st.booleans()) else (x.shape[-1],))), {}


def crossed(draw):
    shape = (*draw.any_shape(0)[:2], 3)
    return (draw.array(shape), draw.array(shape)), {}


def along_diagonal(draw):
    return (draw.array(draw.any_shape(2)),), {"offset": draw(st.integers(-3, 3))}


def two_vectors(draw):
    return (draw.array((draw(st.integers(0, 3)),)), draw.array((draw(st.integers(0, 3)),))), {}


def power_of_matrix(draw):
    return (matrix(draw), draw(st.integers(-2, 4))), {}


def norm_of_matrix(draw):
    order = draw(st.sampled_from(["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf]))
    return (matrix(draw, square=False),), {"ord": order, "keepdims": draw(st.booleans())}


def norm_of_vector(draw):
    shape = draw.any_shape(1, 1)
    axis = draw(st.none() | st.just(draw.axis(shape)))
    order = draw(st.sampled_from([0, 1, 2, 3, math.inf, -math.inf]))
    return (draw.array(shape),), {"axis": axis, "ord": order, "keepdims": draw(st.booleans())}


def lacking_rank(draw):
    x = matrix(draw)
    return (np.concatenate([x, x], axis=-1),), {}


def transformed(draw):
    """One axis of a tensor, as long as it is, shorter, or longer with zeros."""
    shape = draw.any_shape(1)
    axis = draw.axis(shape)
    n = draw(st.integers(1, 5) if shape[axis] < 2 else st.none() | st.integers(1, 5))
    return (draw.array(shape),), {"axis": axis, "n": n, "norm": draw(st.sampled_from(NORMS))}


def transformed_along_several(draw):
    shape = draw.any_shape(1, 2)
    axes = draw(st.none() | hnp.valid_tuple_axes(len(shape), min_size=1))
    lengths = st.lists(
        st.integers(1, 4), min_size=len(axes or shape), max_size=len(axes or shape)
    ).map(tuple)
    s = draw(st.none() | lengths) if axes is not None else None
    return (draw.array(shape),), {"axes": axes, "s": s, "norm": draw(st.sampled_from(NORMS))}


def back_to_reals(draw):
    """The transform of real numbers: of others the inverse one is not defined."""
    shape = draw.any_shape(1, 1)
    axis = draw.axis(shape)
    n = shape[axis] if shape[axis] % 2 else draw(st.sampled_from([shape[axis], None]))
    x = np.fft.rfft(draw.array(shape, POOL["f"], "float64"), axis=axis).astype(draw.dtype)
    return (x,), {"axis": axis, "n": n, "norm": draw(st.sampled_from(NORMS))}


def back_to_reals_along_several(draw):
    shape = draw.any_shape(1, 1)
    axes = draw(hnp.valid_tuple_axes(len(shape), min_size=1))
    x = np.fft.rfftn(draw.array(shape, POOL["f"], "float64"), axes=axes).astype(draw.dtype)
    return (x,), {
        "axes": axes,
        "s": tuple(shape[axis] for axis in axes),
        "norm": draw(st.sampled_from(NORMS)),
    }


def turned_by_half(draw):
    shape = draw.any_shape(1)
    return (draw.array(shape),), {
        "axes": draw(st.none() | hnp.valid_tuple_axes(len(shape), min_size=1))
    }


def frequencies(draw):
    return (draw(st.integers(1, 6)),), {"d": draw(st.sampled_from([1.0, 0.5])), "dtype": draw.dtype}


_TO_FLOATS = (
    "cos",
    "cosh",
    "exp",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
)
CASES = {
    **dict.fromkeys((*_TO_FLOATS, "reciprocal"), (FLOATS, one)),
    **dict.fromkeys(("acos", "asin", "asinh", "atan", "atanh"), (FLOATS, inside)),
    "acosh": (FLOATS, above_one),
    **dict.fromkeys(
        ("abs", "ceil", "floor", "isfinite", "isinf", "isnan", "round", "trunc"), (NUMBERS, one)
    ),
    **dict.fromkeys(("negative", "positive", "sign", "square"), (NUMBERS, one)),
    **dict.fromkeys(("conj", "imag", "real"), (COMPLEX, numbers_only)),
    "signbit": (FLOATS, lambda draw: ((two_reals(draw)[0][0],), {})),
    **dict.fromkeys(("add", "maximum", "minimum", "multiply", "subtract"), (NUMBERS, two)),
    **dict.fromkeys(("greater", "greater_equal", "less", "less_equal"), (NUMBERS, two)),
    **dict.fromkeys(("equal", "not_equal"), ((*ALL, *COMPLEX), two)),
    **dict.fromkeys(("divide", "logaddexp"), (FLOATS, two)),
    **dict.fromkeys(("atan2", "copysign", "hypot", "nextafter"), (FLOATS, two_reals)),
    "floor_divide": (NUMBERS, dividing),
    "remainder": (NUMBERS, remaining),
    "pow": (NUMBERS, power),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), (BITS, bits)),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), (WHOLE, shifted)),
    "bitwise_invert": (BITS, one),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (("bool",), truths)),
    "logical_not": (("bool",), one),
    "where": (ALL, choice),
    "clip": (NUMBERS, limits),
    **dict.fromkeys(("empty", "ones", "zeros"), (ALL, factory)),
    **dict.fromkeys(("empty_like", "ones_like", "zeros_like"), (ALL, like)),
    "full": (ALL, filled),
    "full_like": (ALL, filled_like),
    "arange": (NUMBERS, counting),
    "linspace": (FLOATS, spaced),
    "eye": (ALL, diagonal),
    "asarray": ((*ALL, *COMPLEX), given_data),
    "astype": ((*ALL, *COMPLEX), cast),
    "isdtype": ((*ALL, *COMPLEX), is_of_kind),
    **dict.fromkeys(("can_cast", "result_type"), ((*ALL, *COMPLEX), two_dtypes)),
    "finfo": (FLOATS + COMPLEX, about),
    "iinfo": (WHOLE, about),
    "meshgrid": (NUMBERS, grid),
    **dict.fromkeys(("tril", "triu"), (ALL, triangle)),
    **dict.fromkeys(("all", "any", "count_nonzero"), (ALL, reduction)),
    **dict.fromkeys(("max", "min"), (NUMBERS, of_some)),
    **dict.fromkeys(("prod", "sum"), (NUMBERS, reduction)),
    "mean": (FLOATS, of_some),
    **dict.fromkeys(("std", "var"), (FLOATS, spread)),
    "cumulative_sum": (NUMBERS, running),
    "cumulative_prod": (NUMBERS, running_product),
    "diff": (NUMBERS, differing),
    "matmul": (NUMBERS, matrices),
    "matrix_transpose": (ALL, at_least(2)),
    "tensordot": (NUMBERS, contraction),
    "vecdot": (NUMBERS, dot),
    "broadcast_arrays": (ALL, together),
    "broadcast_shapes": (FLOATS[:1], shapes_only),
    "broadcast_to": (ALL, broadened),
    "concat": (ALL, joined),
    "expand_dims": (ALL, new_axis),
    "flip": (ALL, turned),
    "moveaxis": (ALL, axes_moved),
    "permute_dims": (ALL, permuted),
    "repeat": (ALL, repeated),
    "reshape": (ALL, reshaped),
    "roll": (ALL, rolled),
    "squeeze": (ALL, squeezed),
    "stack": (ALL, stacked),
    "tile": (ALL, tiled),
    "unstack": (ALL, along),
    "take": (ALL, taken),
    "take_along_axis": (ALL, taken_along),
    **dict.fromkeys(("argmax", "argmin"), (NUMBERS, place)),
    **dict.fromkeys(("argsort", "sort"), (NUMBERS, order)),
    "nonzero": (ALL, at_least(1)),
    "searchsorted": (NUMBERS, searched),
    **dict.fromkeys(
        ("unique_all", "unique_counts", "unique_inverse", "unique_values"), (NUMBERS, numbers_only)
    ),
    "isin": (WHOLE, members),
    **dict.fromkeys(("fft.fft", "fft.ifft"), (COMPLEX, transformed)),
    **dict.fromkeys(("fft.hfft", "fft.irfft"), (COMPLEX, back_to_reals)),
    **dict.fromkeys(("fft.rfft", "fft.ihfft"), (FLOATS, transformed)),
    **dict.fromkeys(("fft.fftn", "fft.ifftn"), (COMPLEX, transformed_along_several)),
    "fft.irfftn": (COMPLEX, back_to_reals_along_several),
    "fft.rfftn": (FLOATS, transformed_along_several),
    **dict.fromkeys(("fft.fftshift", "fft.ifftshift"), (FLOATS + COMPLEX, turned_by_half)),
    **dict.fromkeys(("fft.fftfreq", "fft.rfftfreq"), (FLOATS, frequencies)),
    **dict.fromkeys(("linalg.eig", "linalg.eigvals"), (FLOATS + COMPLEX, of_square)),
    # The reference is made of NumPy's, whose DLPack had no booleans before NumPy 2, and MXNet is for NumPy 1.
    "from_dlpack": (
        ALL if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else [d for d in ALL if d != "bool"],
        shared,
    ),
    "linalg.cholesky": (FLOATS, triangular),
    **dict.fromkeys(("linalg.det", "linalg.inv", "linalg.slogdet"), (FLOATS, of_square)),
    **dict.fromkeys(("linalg.eigh", "linalg.eigvalsh"), (FLOATS, definite)),
    **dict.fromkeys(("linalg.pinv", "linalg.qr", "linalg.svdvals"), (FLOATS, any_matrix)),
    "linalg.svd": (FLOATS, tall_or_wide),
    "linalg.solve": (FLOATS, solved),
    "linalg.cross": (NUMBERS, crossed),
    **dict.fromkeys(("linalg.diagonal", "linalg.trace"), (NUMBERS, along_diagonal)),
    "linalg.outer": (NUMBERS, two_vectors),
    "linalg.matrix_power": (FLOATS, power_of_matrix),
    "linalg.matrix_norm": (FLOATS, norm_of_matrix),
    "linalg.vector_norm": (FLOATS, norm_of_vector),
    "linalg.matrix_rank": (FLOATS, lacking_rank),
    "linalg.matmul": (FLOATS, matrices),
    "linalg.matrix_transpose": (FLOATS, at_least(2)),
    "linalg.tensordot": (FLOATS, contraction),
    "linalg.vecdot": (FLOATS, dot),
}
FUNCTIONS = [
    name
    for name in NAMES
    if name not in (*CONSTANTS, *DTYPE_NAMES, *EXTENSIONS, "__array_namespace_info__")
]
FUNCTIONS += [f"{extension}.{name}" for extension, names in EXTENSIONS.items() for name in names]

UNIQUE_UP_TO = {
    # each column of an orthogonal matrix may have another sign, so what it is a part of is compared
    "linalg.eigh": lambda w, v: [w, (v * w[..., None, :]) @ np.conj(np.swapaxes(v, -1, -2))],
    "linalg.eig": lambda w, v: [np.sort_complex(w), v @ (w[..., None] * np.linalg.inv(v))],
    "linalg.eigvals": lambda w: [np.sort_complex(w)],
    "linalg.qr": lambda q, r: [q @ r, np.abs(r), np.conj(np.swapaxes(q, -1, -2)) @ q],
    "linalg.svd": lambda u, s, vh: [s, (u * s[..., None, :]) @ vh],
    "unique_values": lambda values: [np.sort(values)],
}


def all_numbers(backend):
    """A context in which the framework has 64-bit numbers; JAX makes 32-bit ones of them unless told."""
    return backend.framework.enable_x64(True) if backend == "jax" else nullcontext()


def called(xp, name, args, kwargs, device=None):
    """What the function gives, as NumPy arrays; its name where it raises, or leaves the device."""

    def own(value):
        if isinstance(value, list):
            return [own(v) for v in value] if value and isinstance(value[0], np.ndarray) else value
        if isinstance(value, str) and value in DTYPE_NAMES and value != "bool":
            return getattr(xp, value)
        if not isinstance(value, np.ndarray) or name in OF_HOST:
            return value
        return xp.asarray(value) if device is None else xdevice.tensor(value, device=device)

    options = {
        key: xp.bool if (key, value) == ("dtype", "bool") else own(value)
        for key, value in kwargs.items()
    }
    given = [
        xp.bool if name in OF_DTYPES and isinstance(arg, str) and arg == "bool" else own(arg)
        for arg in args
    ]
    try:
        function = xp
        for part in name.split("."):
            function = getattr(function, part)
        found = function(*given, **options)
        whole = isinstance(found, (tuple, list)) and name not in (
            "broadcast_shapes",
            "finfo",
            "iinfo",
        )
        results = found if whole else (found,)
        if device is not None and name not in ("result_type", "finfo", "iinfo"):
            made = [x for x in results if hasattr(x, "shape")]
            is_given = any(isinstance(arg, np.ndarray) for arg in args)
            assert not is_given or {xdevice.device_of(x) for x in made} <= {device}
        return [plain(xp, x) for x in results]
    except Exception as error:
        return (
            f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error) else ''}"
        )


OF_HOST = ("asarray", "from_dlpack")
OF_DTYPES = ("isdtype", "can_cast", "result_type")


def plain(xp, value):
    """A NumPy array of what a function returned: a tensor, a dtype, numbers, or what is known of a dtype."""
    if hasattr(value, "bits"):
        parts = [
            getattr(value, part, 0) for part in ("bits", "max", "min", "eps", "smallest_normal")
        ]
        return np.asarray([float(part) for part in parts])
    if isinstance(value, (bool, int, tuple)):
        return np.asarray(value)
    if hasattr(value, "shape") and not isinstance(value, np.dtype):
        return np.asarray(value) if xp is strict else xdevice.to_numpy(value)
    known = [name for name in DTYPE_NAMES if xp is strict or name in dir(xp)]
    return np.asarray([name in known and getattr(xp, name) == value for name in DTYPE_NAMES])


def differs(name, expected, found):
    """What is different, if anything."""
    assert not isinstance(expected, str), f"the reference cannot do {name}: {expected}"
    if isinstance(found, str):
        return found
    for want, have in zip(expected, found, strict=True):
        if (want.dtype, want.shape) != (have.dtype, have.shape):
            return f"{have.dtype}{list(have.shape)} for {want.dtype}{list(want.shape)}"
    if name in ("empty", "empty_like"):
        return None
    settled = UNIQUE_UP_TO.get(name, lambda *parts: parts)
    for want, have in zip(settled(*expected), settled(*found), strict=True):
        tight = (
            (1e-4 if "linalg" in name else 1e-5)
            if want.dtype in ("float32", "complex64")
            else 1e-10
        )
        if not np.allclose(want, have, rtol=tight, atol=tight, equal_nan=True):
            return f"{have.tolist()} for {want.tolist()}"
    return None


def differences(backend, name, dtype, draw_case):
    """What hypothesis finds to be different, each with its arguments."""
    found = []
    xp = namespace()
    device = None if name in OF_HOST else xdevice.devices()[-1]
    how = FEW if backend == "jax" else QUIET if dtype in (*FLOATS, *INTS, "bool") else SOME

    @how
    @given(st.data())
    def compare(data):
        args, kwargs = draw_case(Draw(data, dtype, dir(xp)))
        with np.errstate(all="ignore"):
            difference = differs(
                name, called(strict, name, args, kwargs), called(xp, name, args, kwargs, device)
            )
        if difference:
            found.append(f"{name}(*{args}, **{kwargs}): {difference}")

    with all_numbers(backend):
        compare()
    return found


def missing(xp, name):
    """What is said of a function that the framework cannot have."""
    try:
        for part in name.split("."):
            xp = getattr(xp, part)
    except xdevice.NotSupportedError as error:
        return str(error)
    return None


@pytest.mark.frameworks("numpy")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_does_what_the_standard_says(backend, name, request):
    dtypes, draw_case = CASES[name]
    listed, _ = DIFFERENCES.get((str(backend), name), ((), ""))
    if backend == "jax":
        dtypes = [
            dtype for dtype in dtypes if dtype not in ("float64", "int32", *NARROW, "complex128")
        ] or dtypes
    dtypes = [dtype for dtype in dtypes if dtype in dir(namespace())]
    if lacking := missing(namespace(), name):
        assert re.match(
            rf"{backend} has no ({name.split('.')[-1]}|{name.split('.')[0]}): \w", lacking
        )
        return
    if not request.config.getoption("--weekly"):  # the contract has each function, too
        dtypes = [*dtypes[::4], *(dtype for dtype in listed if dtype not in dtypes[::4])]
    found = {dtype: differences(backend, name, dtype, draw_case) for dtype in dtypes}
    wrong = {dtype: where[:3] for dtype, where in found.items() if where}
    if (backend, name) == ("paddle", "sqrt"):  # few of the arrays that are drawn have such numbers
        infinite = namespace().sqrt(xdevice.full((9,), float("inf")))
        if np.isnan(xdevice.to_numpy(infinite)).any():
            wrong["float32"] = infinite
    assert sorted(wrong) == sorted(listed), wrong


def test_every_function_is_compared_and_every_difference_is_of_one():
    assert set(CASES) == set(FUNCTIONS)
    assert {name for _, name in DIFFERENCES} <= set(CASES)


def test_the_page_shows_the_list_and_the_differences():
    page = (Path(__file__).parents[2] / "docs" / "test" / "maths.md").read_text(encoding="utf-8")
    groups = re.search(r"^\| constants \|.*?\n\n", page, re.M | re.S)[0]
    table = [
        f"| {framework} | `{name}` | {', '.join(dtypes)} | {reason} |"
        for (framework, name), (dtypes, reason) in DIFFERENCES.items()
    ]
    assert sorted(re.findall("`(.+?)`", groups)) == sorted(NAMES)
    assert "\n".join(table) in page
    for extension, names in (("linalg", LINALG), ("fft", FFT)):
        listed = re.search(f"^`{extension}` has {len(names)} functions: (.*)", page, re.M)[1]
        assert sorted(re.findall("`(.+?)`", listed)) == sorted(names)
    assert f"{len(NAMES)} names" in page
