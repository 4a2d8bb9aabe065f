"""The source of `prefetch` has its loop's settings for every batch: those that a framework keeps for each thread."""

import decimal
import textwrap
import time

import pytest

import xdevice

SETTINGS = {
    "torch": """
        import torch
        w = torch.ones(2, requires_grad=True)
        with torch.no_grad():
            assert not any(batch.requires_grad for batch in ahead(lambda i: w * i))
        with torch.inference_mode():
            assert all(batch.is_inference() for batch in ahead(lambda i: torch.ones(2) * i))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert {batch.dtype for batch in ahead(lambda i: torch.ones(2, 2) @ torch.ones(2, 2))} == {torch.bfloat16}
        sum(batch.sum() for batch in ahead(lambda i: w * i)).backward()
        assert w.grad.tolist() == [15, 15]
    """,
    "tensorflow": """
        import tensorflow as tf
        with tf.device("CPU:0"):
            w = tf.ones(2)
        with tf.GradientTape() as tape:
            tape.watch(w)
            def made(i):
                with tf.device("CPU:0"):
                    return w * i
            total = sum(xdevice.to_device(tf.reduce_sum(batch), "cpu") for batch in ahead(made))
        assert tape.gradient(total, w).numpy().tolist() == [15, 15]
    """,
    "paddle": """
        import paddle
        w = paddle.ones([2])
        w.stop_gradient = False
        w = xdevice.to_device(w, "cpu")
        with paddle.no_grad():
            assert all(batch.stop_gradient for batch in ahead(lambda i: w * i))
        assert not any(batch.stop_gradient for batch in ahead(lambda i: w * i))
    """,
    "jax": """
        import jax, jax.numpy as jnp
        here = jax.devices("cpu")[0]
        with jax.enable_x64(True):
            made = ahead(lambda i: jax.device_put(jnp.full(3, i, dtype="float64"), here))
            assert {str(batch.dtype) for batch in made} == {"float64"}
    """,
    "mxnet": """
        import mxnet as mx
        with mx.util.np_shape(True), mx.util.np_array(True):
            assert {type(batch) for batch in ahead(lambda i: mx.np.ones(()) * i)} == {mx.np.ndarray}
            w = mx.np.ones(2)
            w.attach_grad()
            with mx.autograd.record():
                total = sum(batch.sum().as_in_ctx(mx.cpu(0)) for batch in ahead(lambda i: w * i))
            total.backward()
            assert w.grad.tolist() == [15, 15]
    """,
    "numpy": """
        import numpy
        with numpy.errstate(divide="raise"):
            assert [numpy.geterr()["divide"] for batch in ahead(lambda i: numpy.ones(2))] == ["raise"] * 6
    """,
}


@pytest.mark.frameworks("torch", "paddle", "mxnet", "jax", "numpy", "array_api_strict")
def test_the_source_has_the_settings_of_its_loop(backend):
    where = xdevice.devices()[-1]

    def ahead(made):
        def source():
            for i in range(6):
                assert decimal.getcontext().prec == 3
                time.sleep(0.003)
                yield made(i)

        return xdevice.prefetch(source(), where)

    names = {"xdevice": xdevice, "ahead": ahead}
    with decimal.localcontext(decimal.Context(prec=3)):
        exec(textwrap.dedent(SETTINGS[str(backend)]), names)
