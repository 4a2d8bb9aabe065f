"""The training loop of the page about many devices, as it is there, under every framework with gradients."""

import re
from pathlib import Path

import numpy as np
import pytest

import xdevice

PAGE = Path(__file__).parents[2] / "docs" / "learn" / "parallel.md"


def loss(params, x, y):
    xp = xdevice.namespace(x)
    return xp.mean((xp.matmul(x, params["w"]) + params["b"] - y) ** 2)


def batch(seed):
    x = np.random.default_rng(seed).normal(size=(6, 3)).astype("float32")
    return xdevice.tensor(x), xdevice.tensor(x.sum(axis=1, keepdims=True))


@pytest.mark.frameworks("torch")
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_the_loop_of_the_page_equals_training_on_one_device(backend):
    loop = re.search(r"^```text\n(def update.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)[1]
    params = {"w": xdevice.zeros(3, 1), "b": xdevice.zeros(1)}
    names = {"xdevice": xdevice, "loss": loss, "params": params, "batches": map(batch, range(20))}
    exec(loop, names)

    one = [xdevice.cpu()]
    alone = xdevice.replicate(params, one)
    for x, y in map(batch, range(20)):
        gradients = xdevice.data_parallel(loss, one)(alone, x, y)[1]
        alone = alone.map(names["update"], gradients)
    devices = [xdevice.device_of(replica) for replica in names["replicas"]]
    assert devices == xdevice.try_all_gpus()
    for replica in names["replicas"]:
        for name, values in alone[0].items():
            expected = pytest.approx(xdevice.to_numpy(values), rel=1e-4, abs=1e-5)
            assert xdevice.to_numpy(replica[name]) == expected
    assert xdevice.to_numpy(names["value"]).item() < 0.1
