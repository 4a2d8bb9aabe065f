"""What only JAX's engine does."""

import re

import pytest

LATE = """
import jax
import xdevice
from xdevice import distributed

jax.numpy.ones(1)
try:
    distributed.init(30)
except xdevice.DistributedError as error:
    print(error)
"""

QUIRKS = """
import os
import signal
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
import xdevice
from xdevice import distributed

for time in (1, 2):
    distributed.init(30)
    rank = distributed.rank()
    assert xdevice.devices() == [xdevice.as_device("cpu:0")] and len(jax.devices()) == 2
    odd = np.array([np.nan, -0.0, 1e-42, np.inf], "float32").view("uint32")
    odd[0] += 5  # a payload
    sent = jnp.array(odd.view("float32"))
    for found in (distributed.broadcast(sent), *distributed.all_gather(sent)):
        assert np.asarray(found).view("uint32").tolist() == odd.tolist(), found
    with jax.enable_x64(True):
        wide = jnp.array([2**40 + rank, -1])
    assert distributed.all_reduce(wide).tolist() == [2**41 + 1, -2]
    assert multihost_utils.process_allgather(jnp.array([rank])).ravel().tolist() == [0, 1]  # JAX's own way works too
    distributed.shutdown()

distributed.init(30)
if rank == 0:
    os.kill(os.getpid(), signal.SIGKILL)  # it has held JAX's own service
distributed.barrier()
"""


@pytest.mark.weekly
def test_starting_after_the_first_array_is_an_error(launch, tmp_path):
    script = tmp_path / "late.py"
    script.write_text(LATE)
    done = launch("jax", script=script)
    for rank in (0, 1):
        assert (
            "call xdevice.distributed.init() before the first array is made" in done.of(rank)[-1]
        ), done.stderr


@pytest.mark.weekly
def test_64_bits_and_a_lost_rank_0(launch, tmp_path):
    script = tmp_path / "quirks.py"
    script.write_text(QUIRKS)
    done = launch("jax", script=script)
    assert done.status == 128 + 9, done.stderr
    assert re.search(
        r"\[1\] xdevice.errors.DistributedError: rank 0 \(process \d+\) has gone", done.stderr
    )
    assert "JAX distributed service" not in done.stderr
