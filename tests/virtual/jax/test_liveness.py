"""The temporary memory of compiled functions, compared with what XLA planned on an RTX 4090.

Recorded in smolix/d2l-neu, in outputs/jax: chapter_computational-performance/memory-precision.json,
chapter_builders-guide/gpus-devices-memory.json and chapter_attention/attention-at-scale.json. The functions are of the
same shapes; none is computed.
"""

import jax
import jax.numpy as jnp
import pytest

from xdevice.virtual.jax.liveness import temporary_bytes

MB, MIB = 10**6, 2**20


def matrix(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def temporary(loss, *arguments):
    return temporary_bytes(jax.make_jaxpr(jax.grad(loss))(*arguments).jaxpr)


def test_a_plain_stack_needs_what_was_recorded():
    def loss(weights, x):
        for w in weights:
            x = jax.nn.relu(x @ w)
        return x.sum()

    needed = temporary(loss, [matrix(2048, 2048)] * 6, matrix(256, 2048))
    assert needed == pytest.approx(15 * MB, rel=0.05)


@pytest.mark.parametrize(("recomputes", "recorded"), [(False, 3230 * MB), (True, 1216 * MB)])
def test_gelu_blocks_with_and_without_checkpointing_need_what_was_recorded(recomputes, recorded):
    def block(weights, x):
        return x + jax.nn.gelu(x @ weights[0]) @ weights[1]

    def loss(blocks, x):
        for weights in blocks:
            x = (jax.checkpoint(block) if recomputes else block)(weights, x)
        return (x**2).sum()

    needed = temporary(loss, [[matrix(1024, 1024)] * 2] * 16, matrix(16384, 1024))
    assert needed == pytest.approx(recorded, rel=0.05)


def test_checkpointing_relu_blocks_saves_what_was_recorded():  # 2401 and 1377 MiB
    def block(weights, x):
        first, bias, second, other_bias = weights
        return x + jax.nn.relu(jax.nn.relu(x @ first + bias) @ second + other_bias)

    def stack(blocks, x, recomputes):
        def segment(some, x):
            for weights in some:
                x = block(weights, x)
            return x

        for start in range(0, 16, 4):
            run = jax.checkpoint(segment) if recomputes else segment
            x = run(blocks[start : start + 4], x)
        return x.sum()

    blocks = [[matrix(1024, 1024), matrix(1024), matrix(1024, 1024), matrix(1024)]] * 16
    x = matrix(8192, 1024)
    needs = [temporary(lambda b, x, r=r: stack(b, x, r), blocks, x) for r in (False, True)]
    assert needs[0] - needs[1] == pytest.approx((2401 - 1377) * MIB, rel=0.05)


@pytest.mark.parametrize(
    ("heads", "length", "dtype", "recorded"),
    [
        (1, 2048, jnp.float32, 32),
        (1, 4096, jnp.float32, 128),
        (1, 16384, jnp.float32, 2048),
        (16, 8192, jnp.float16, 4096),
    ],
)
def test_attention_needs_its_scores_and_their_softmax(heads, length, dtype, recorded):
    def attention(q, k, v):
        scores = q @ k.swapaxes(-1, -2) / 8
        scores = jnp.where(jnp.tri(length, dtype=bool), scores, jnp.finfo(dtype).min)
        return jax.nn.softmax(scores, axis=-1) @ v

    array = jax.ShapeDtypeStruct((heads, length, 64), dtype)
    needed = temporary_bytes(jax.make_jaxpr(attention)(array, array, array).jaxpr)
    assert needed == pytest.approx(recorded * MIB, rel=0.001)


def test_a_loop_needs_one_turn_and_its_stacked_results():
    def turn(carry, x):
        product = carry @ x
        return jnp.tanh(product), None

    def loss(x, xs):
        return jax.lax.scan(turn, x, xs)[0].sum()

    x, xs = matrix(256, 256), matrix(64, 256, 256)
    forward = temporary_bytes(jax.make_jaxpr(loss)(x, xs).jaxpr)
    assert forward <= 4 * 256 * 1024
    assert temporary(loss, x, xs) >= 64 * 256 * 1024
