"""Gradients flow through every function that has them, under every framework, and are those of calculus."""

from __future__ import annotations

import numpy as np
import pytest

import xdevice
from xdevice import to_numpy, value_and_grad
from xdevice.tensors.namespace import namespace

# without equal numbers, and where every function is smooth
X = np.array([[0.3, 1.2, 0.7], [0.9, 0.4, 1.6]])
W = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])

CASES = {
    **{
        name: (lambda xp, x, name=name: getattr(xp, name)(x))
        for name in (
            *(
                "abs",
                "ceil",
                "cos",
                "cosh",
                "exp",
                "expm1",
                "floor",
                "log",
                "log10",
                "log1p",
                "log2",
                "negative",
            ),
            *(
                "reciprocal",
                "round",
                "sign",
                "sin",
                "sinh",
                "sqrt",
                "square",
                "tan",
                "tanh",
                "asinh",
                "atan",
                "trunc",
            ),
            *(
                "max",
                "mean",
                "min",
                "prod",
                "std",
                "sum",
                "var",
                "matrix_transpose",
                "sort",
                "tril",
                "triu",
                "flip",
            ),
        )
    },
    **{
        name: (lambda xp, x, name=name: getattr(xp, name)(x, xp.asarray(W, dtype=x.dtype)))
        for name in (
            "add",
            "atan2",
            "divide",
            "hypot",
            "logaddexp",
            "maximum",
            "minimum",
            "multiply",
            "subtract",
            "vecdot",
        )
    },
    "pow": lambda xp, x: xp.pow(x, 3),
    "pow of a number": lambda xp, x: xp.pow(2.0, x),
    "subtract from a number": lambda xp, x: xp.subtract(1, x),
    "divide by itself": lambda xp, x: xp.divide(x, xp.sum(x, axis=1, keepdims=True)),
    "clip": lambda xp, x: xp.clip(x, 0.5, 1.0),
    "where": lambda xp, x: xp.where(xp.greater(x, 0.8), x, xp.square(x)),
    "astype": lambda xp, x: xp.astype(xp.astype(x, "float32"), x.dtype),
    "asarray": lambda xp, x: xp.asarray(x, copy=True),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True),
    "acos": lambda xp, x: xp.acos(xp.divide(x, 4.0)),
    "acosh": lambda xp, x: xp.acosh(xp.add(x, 1.5)),
    "asin": lambda xp, x: xp.asin(xp.divide(x, 4.0)),
    "atanh": lambda xp, x: xp.atanh(xp.divide(x, 4.0)),
    "cumulative_prod": lambda xp, x: xp.cumulative_prod(x, axis=1, include_initial=True),
    "diff": lambda xp, x: xp.diff(x, axis=1, prepend=x[:, :1]),
    "cross": lambda xp, x: xp.linalg.cross(x, xp.flip(x, axis=0)),
    "det": lambda xp, x: xp.linalg.det(square(xp, x)),
    "diagonal": lambda xp, x: xp.linalg.diagonal(x, offset=1),
    "inv": lambda xp, x: xp.linalg.inv(square(xp, x)),
    "cholesky": lambda xp, x: xp.linalg.cholesky(square(xp, x)),
    "matrix_norm": lambda xp, x: xp.linalg.matrix_norm(x),
    "matrix_power": lambda xp, x: xp.linalg.matrix_power(square(xp, x), 3),
    "outer": lambda xp, x: xp.linalg.outer(x[0, :], x[1, :]),
    "slogdet": lambda xp, x: xp.linalg.slogdet(square(xp, x)).logabsdet,
    "solve": lambda xp, x: xp.linalg.solve(square(xp, x), x),
    "solve with constants": lambda xp, x: xp.linalg.solve(
        square(xp, x), xp.asarray([[1.0], [2.0]], dtype=x.dtype)
    ),
    "solve with a vector": lambda xp, x: xp.linalg.solve(
        square(xp, x), xp.asarray([1.0, 2.0], dtype=x.dtype)
    ),
    "solve of constants": lambda xp, x: xp.linalg.solve(
        xp.asarray([[2.0, 1.0], [1.0, 3.0]], dtype=x.dtype), x
    ),
    "trace": lambda xp, x: xp.linalg.trace(x),
    "vector_norm": lambda xp, x: xp.linalg.vector_norm(x, axis=1),
    "matmul": lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)),
    "matmul with a vector": lambda xp, x: xp.matmul(x, x[0, :]),
    "tensordot": lambda xp, x: xp.tensordot(x, x, axes=([0], [0])),
    "broadcast_arrays": lambda xp, x: xp.broadcast_arrays(x, xp.ones((2, 2, 3), dtype=x.dtype))[0],
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (2, 2, 3)),
    "meshgrid": lambda xp, x: xp.meshgrid(x[0, :], x[1, :])[0],
    "concat": lambda xp, x: xp.concat([x, xp.square(x)], axis=None),
    "stack": lambda xp, x: xp.stack([x, xp.square(x)], axis=1),
    "unstack": lambda xp, x: xp.multiply(*xp.unstack(x)),
    "expand_dims": lambda xp, x: xp.expand_dims(x, axis=1),
    "squeeze": lambda xp, x: xp.squeeze(xp.expand_dims(x, axis=1), axis=1),
    "moveaxis": lambda xp, x: xp.moveaxis(x, 0, 1),
    "permute_dims": lambda xp, x: xp.permute_dims(x, (1, 0)),
    "repeat": lambda xp, x: xp.repeat(x, 2, axis=1),
    "reshape": lambda xp, x: xp.reshape(x, (-1,)),
    "roll": lambda xp, x: xp.roll(x, 1, axis=1),
    "tile": lambda xp, x: xp.tile(x, (2, 1)),
    "take": lambda xp, x: xp.take(x, xp.asarray([0, 0, 2]), axis=1),
    "take_along_axis": lambda xp, x: xp.take_along_axis(x, xp.asarray([[0, 2], [1, 1]]), axis=1),
}


def square(xp, x):
    """A symmetric matrix far from singular."""
    return xp.matmul(x, xp.matrix_transpose(x))


def weighed(xp, function, x):
    """One number that depends on each of the function's in another way."""
    flat = xp.reshape(function(xp, x), (-1,))
    return xp.sum(xp.multiply(flat, xp.linspace(1, 2, flat.shape[0], dtype=flat.dtype)))


def slopes(function):
    """By finite differences, under NumPy."""
    with xdevice.using("numpy"):
        xp, found, step = namespace(), np.zeros_like(X), 1e-6
        if function is CASES["astype"]:
            return np.linspace(1, 2, X.size).reshape(X.shape)  # too coarse to differ
        for place in np.ndindex(*X.shape):
            change = np.zeros_like(X)
            change[place] = step
            found[place] = (
                weighed(xp, function, X + change) - weighed(xp, function, X - change)
            ) / (2 * step)
        return found


@pytest.mark.frameworks("torch")
@pytest.mark.parametrize("name", CASES)
def test_gradients_flow_through(backend, name):
    if backend == "numpy":
        with pytest.raises(xdevice.NotSupportedError):
            value_and_grad(lambda x: weighed(namespace(), CASES[name], x))(X)
        return
    xp = namespace()
    x = xdevice.tensor(X, dtype="float32")
    _, gradient = value_and_grad(lambda x: weighed(xp, CASES[name], x))(x)
    np.testing.assert_allclose(to_numpy(gradient), slopes(CASES[name]), rtol=1e-3, atol=1e-4)


def test_a_loss_is_compiled_as_it_is_run(backend):
    compilers = {"jax": "jit", "tensorflow": "function"}
    xp = namespace()
    compiled = getattr(backend.framework, compilers.get(backend, ""), lambda function: function)

    def loss(x):
        apart = xp.subtract(x, xp.max(x, axis=1, keepdims=True))
        spread = xp.add(
            xp.var(xp.clip(x, 0, 1), correction=1),
            xp.sum(xp.tril(xp.where(xp.greater(x, 1), x, 0.0))),
        )
        zeros = xp.add(xp.zeros_like(x), xp.zeros((3,), dtype=x.dtype))
        return xp.add(xp.mean(xp.log(xp.sum(xp.exp(xp.add(apart, zeros)), axis=1))), spread)

    x = xdevice.tensor(X, dtype="float32")
    np.testing.assert_allclose(to_numpy(compiled(loss)(x)), to_numpy(loss(x)), rtol=1e-5)
