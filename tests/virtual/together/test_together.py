"""Six frameworks on virtual GPUs in one process: the promises in which one could get in another's way.

Each keeps the whole contract in an environment of its own.
"""

from pathlib import Path

import pytest

import xdevice
from xdevice.testing import contract

NATIVE = Path(__file__).parents[2] / "native"


class TestTogether(contract.Hardware, contract.Exchange, contract.Scopes, contract.Mixing):
    native = NATIVE


@pytest.mark.weekly
class TestTensorsTogether(contract.Creation, contract.Placement, contract.SeveralPlacements):
    native = NATIVE


@pytest.mark.parametrize(("source", "target"), [("tensorflow", "jax"), ("jax", "tensorflow")])
def test_frameworks_share_no_memory_of_a_gpu(source, target):
    with xdevice.using(source):
        x = xdevice.ones(2, 2, device="gpu:1")
    with pytest.raises(xdevice.CopyNeededError):
        xdevice.convert(x, target, copy=False)
    assert xdevice.device_of(xdevice.convert(x, target)) == "gpu:1"


@pytest.mark.weekly
def test_arrays_of_jax_and_pytorch_keep_their_gpu_through_dlpack(program):
    lines = program("""
        import jax, jax.numpy as jnp, torch, xdevice
        x = jax.device_put(jnp.arange(3.0), jax.devices()[1])
        print(torch.from_dlpack(x), jnp.from_dlpack(torch.ones(2)).device, xdevice.convert(x, "torch").tolist())
        torch.cuda.set_device(1)
        print(jnp.from_dlpack(torch.ones(2, device="cuda")).device)
    """)
    assert lines == ["tensor([0., 1., 2.], device='cuda:1') cpu:0 [0.0, 1.0, 2.0]", "cuda:1"]


@pytest.mark.weekly
def test_tensors_of_tensorflow_and_pytorch_keep_their_gpu_through_dlpack(program):
    lines = program("""
        import tensorflow as tf, torch
        pack, unpack = tf.experimental.dlpack.to_dlpack, tf.experimental.dlpack.from_dlpack
        with tf.device("/GPU:1"):
            x = tf.constant([1.0, 2.0])
        theirs = torch.utils.dlpack.to_dlpack(torch.ones(1).cuda(1))
        print(torch.utils.dlpack.from_dlpack(pack(x)), unpack(theirs).device[-5:])
    """)
    assert lines == ["tensor([1., 2.], device='cuda:1') GPU:1"]
