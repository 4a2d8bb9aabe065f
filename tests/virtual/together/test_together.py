"""Six frameworks on virtual GPUs in one process: the promises in which one could get in another's way.

Each keeps the whole contract in an environment of its own.
"""

from pathlib import Path

import pytest

from xdevice.testing import contract

NATIVE = Path(__file__).parents[2] / "native"


class TestTogether(contract.Hardware, contract.Exchange, contract.Scopes, contract.Mixing):
    native = NATIVE


@pytest.mark.weekly
class TestTensorsTogether(contract.Creation, contract.Placement, contract.SeveralPlacements):
    native = NATIVE


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
