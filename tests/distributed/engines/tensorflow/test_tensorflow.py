"""What only TensorFlow's engine does."""

import pytest

CLUSTER = """
import json, os
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
workers = [f"127.0.0.1:{port + 1 + r}" for r in range(2)]
task = {"type": "worker", "index": rank}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
"""

WORKS = (
    CLUSTER
    + """
import numpy as np, tensorflow as tf, xdevice
from xdevice import device_of, distributed as dist, gpu, scope, to_device, to_numpy

dist.init(60)
rank, here = dist.rank(), gpu(1)
assert list(map(str, xdevice.devices())) == ["cpu:0", "gpu:0", "gpu:1"], xdevice.devices()
assert xdevice.native(here) == "/CPU:2"

# In a cluster what operations make is on "localhost", and variables are on the worker
variable = tf.Variable([1.0, 2.0])
assert device_of(variable) == device_of(tf.ones(2)) == device_of(xdevice.ones(2)) == xdevice.cpu()
with scope(here):
    assert device_of(tf.Variable([1.0])) == device_of(tf.ones(1) + 1) == here
moved = to_device(tf.constant([1.0, 2.0]), here)
value, gradient = xdevice.value_and_grad(lambda w: tf.reduce_sum(w * w))(moved)
assert device_of(moved) == device_of(gradient) == device_of(dist.all_reduce(gradient)) == here
assert to_numpy(dist.all_reduce(gradient)).tolist() == [4, 8]

with tf.GradientTape() as tape:
    tape.watch(moved)
    total = dist.all_reduce(moved)
assert tape.gradient(total, moved) is None

# Beyond what the ring adds up by itself
assert to_numpy(dist.all_reduce(tf.constant([250 + rank, 1], tf.uint8))).tolist() == [(250 + 251) % 256, 2]
large = tf.constant([2**63 + rank, rank], tf.uint64)
assert to_numpy(dist.all_reduce(large, "max")).tolist() == [2**63 + 1, 1]
assert to_numpy(dist.all_reduce(tf.constant([1 + 2j * rank], tf.complex128))).tolist() == [2 + 2j]
bits = np.array([0x7FC1, 0xFF81, 0x8000, 1, 0x7F81], "uint16")  # NaNs that differ, -0.0, the least number
sent = tf.bitcast(tf.constant(bits if rank else 0 * bits), tf.bfloat16)
assert tf.bitcast(dist.broadcast(sent, 1), tf.uint16).numpy().tolist() == bits.tolist()
assert tf.bitcast(dist.all_gather(sent)[1], tf.uint16).numpy().tolist() == bits.tolist()

dist.shutdown()
dist.init(60)  # the same processes may come together again
assert to_numpy(dist.all_reduce(tf.ones(3))).tolist() == [2, 2, 2]
dist.shutdown()
print("agreed", flush=True)
"""
)

OWN = """
import os
import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended
from xdevice import distributed, to_numpy

distributed.init(60)
rank, port = distributed.rank(), int(os.environ["MASTER_PORT"])
workers = tf.train.ClusterSpec({"worker": [f"127.0.0.1:{port + 1 + r}" for r in range(2)]})
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    workers, task_type="worker", task_id=rank, rpc_layer="grpc"
)
CollectiveAllReduceExtended._enable_check_health = False  # which begin with a collective
strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
distributed.barrier()
with strategy.scope():
    variable = tf.Variable([1.0 + rank, 2.0])
assert variable.numpy().tolist() == [1, 2]
assert to_numpy(distributed.all_reduce(tf.ones(2))).tolist() == [2, 2]
distributed.shutdown()
print("agreed", flush=True)
"""

LATE = (
    CLUSTER
    + """
import xdevice
from xdevice import distributed
xdevice.ones(1)
distributed.init(60)
distributed.shutdown()
"""
)


@pytest.fixture
def run(launch, tmp_path):
    def run(script, **env):
        path = tmp_path / "script.py"
        path.write_text(script, encoding="utf-8")
        return launch("tensorflow", script=path, **env)

    return run


@pytest.mark.weekly
@pytest.mark.parametrize("trusts", ["0", "1"])  # memory, and TensorFlow's own cluster
def test_devices_bits_and_no_service(run, trusts):
    done = run(
        WORKS, XDEVICE_VIRTUAL_GPUS="2", TF_CPP_MIN_LOG_LEVEL="0", XDEVICE_TRUST_NETWORK=trusts
    )
    assert done.status == 0, done.stderr
    assert done.of(0)[-1] == done.of(1)[-1] == "agreed"
    assert (
        "oordination" not in done.stderr
    )  # else a process that outlives rank 0 would print its errors


@pytest.mark.weekly
def test_an_own_strategy_works_beside_it(run):
    done = run(OWN, limit=120)
    assert done.status == 0, done.stderr
    assert done.of(0)[-1] == done.of(1)[-1] == "agreed"


@pytest.mark.weekly
def test_joining_after_the_first_tensor(run):
    done = run(LATE)
    assert done.status == 0, done.stderr
    done = run(LATE, XDEVICE_TRUST_NETWORK="1")
    assert done.status != 0
    assert "call xdevice.distributed.init() before the first tensor is made" in done.stderr


@pytest.mark.weekly
def test_no_engine_listens_on_one_host(launch):
    done = launch("tensorflow", "listens")
    assert done.status == 0, done.stderr
    for rank in (0, 1):
        assert done.of(rank)[-2].startswith("0 sockets listen")


@pytest.mark.weekly
def test_a_cluster_needs_its_variable(launch):
    done = launch("tensorflow", "agrees", XDEVICE_TRUST_NETWORK="1")
    assert done.status != 0
    assert "tensorflow's processes meet by TF_CONFIG, which is not set; set it in" in done.stderr
