"""JAX's own words for what the contract suite needs."""

from contextlib import contextmanager

import jax
import jax.numpy as jnp


def ones():
    return jnp.ones((2, 3))


def address(x):
    return x.unsafe_buffer_pointer()


def owned():
    return [jnp.ones(1), jnp.float32(1), jax.random.key(0), jnp.ones(3)[0]]


def compiled(fn):
    return jax.jit(fn)


def compiled_loss():
    compilations = []

    def loss(p, x):
        compilations.append(None)  # runs only while JAX traces
        return ((x @ p["w"] + p["b"]) ** 2).sum()

    return jax.jit(loss), compilations


def gradient(move):
    """The gradient of sum(2 * move(x)) with respect to x, which is 2 everywhere."""
    return jax.grad(lambda x: (2 * move(x)).sum())(jnp.ones(3)).tolist()


def mixing_gradient(x, y):
    """A backward pass in which x's gradient meets y."""

    @jax.custom_vjp
    def double(x):
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda _, gradient: (gradient + y,))
    _, backward = jax.vjp(double, x)
    return lambda: backward(jax.device_put(jnp.ones_like(x), x.device))


@jax.jit
def _many_products(x):
    return jax.lax.fori_loop(0, 800, lambda _, y: jnp.tanh(x @ y / x.size), x)


@contextmanager
def unfinished(x):
    """An array that takes a while to compute; JAX does not run callbacks in the background."""
    array = _many_products(x)
    yield array, array.is_ready
    array.block_until_ready()


def symbolic(ask):
    """Ask about a tensor of a graph."""

    @jax.jit
    def graph(x):
        ask(x)
        return x

    graph(jnp.ones(2))


def native_devices():
    return [(jax.devices("cpu")[0], "cpu:0")]
