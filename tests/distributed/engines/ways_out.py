"""The frameworks' own ways of training in several processes, between `init` and `shutdown`: ``ways_out.py``.

In each, the processes have different data, and after a step the parameters that the mean of their gradients gives.
"""

import os
import sys

import numpy as np

import xdevice
from xdevice import distributed as dist

RATE = 0.5
W = np.array([[1.0], [-2.0], [0.5]], "float32")


def data(rank):
    random = np.random.default_rng(rank)
    return random.normal(size=(4, 3)).astype("float32"), random.normal(size=(4, 1)).astype(
        "float32"
    )


def wanted(size):
    """The parameters after a step with the mean of all processes' gradients of the mean squared error."""
    gradients = [2 * x.T @ (x @ W - y) / len(x) for x, y in map(data, range(size))]
    return W - RATE * np.mean(gradients, axis=0)


def torch(rank, size):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    net = torch.nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor(W.T if rank == 0 else 0 * W.T))  # those of rank 0 count
    wrapped = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(wrapped.parameters(), RATE)
    x, y = map(torch.tensor, data(rank))
    torch.nn.functional.mse_loss(wrapped(x), y).backward()
    optimizer.step()
    return net.weight.detach().numpy().T


def paddle(rank, size):
    import paddle

    os.environ["PADDLE_TRAINERS_NUM"], os.environ["PADDLE_TRAINER_ID"] = str(size), str(rank)
    net = paddle.nn.Linear(3, 1, bias_attr=False)
    net.weight.set_value(paddle.to_tensor(W if rank == 0 else 0 * W))
    wrapped = paddle.DataParallel(net)
    optimizer = paddle.optimizer.SGD(RATE, parameters=wrapped.parameters())
    x, y = map(paddle.to_tensor, data(rank))
    paddle.nn.functional.mse_loss(wrapped(x), y).backward()
    optimizer.step()
    return net.weight.numpy()


def jax(rank, size):
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = [next(d for d in jax.devices() if d.process_index == r) for r in range(size)]
    mesh = Mesh(np.array(devices), ("process",))
    parts, copies = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["process"], []))
    x, y = (jax.make_array_from_process_local_data(parts, rows) for rows in data(rank))
    w = jax.device_put(W, copies)

    @jax.jit
    def by_jit(w, x, y):
        return w - RATE * jax.grad(lambda w: ((x @ w - y) ** 2).mean())(w)

    def of_one(w, x, y):
        # of parameters that all share, the gradient is that of all processes, added up
        return w - RATE * jax.grad(lambda w: ((x @ w - y) ** 2).mean())(w) / size

    specs = {
        "in_specs": (PartitionSpec(), *[PartitionSpec("process")] * 2),
        "out_specs": PartitionSpec(),
    }
    by_shard_map = jax.jit(jax.shard_map(of_one, mesh=mesh, **specs))
    one, other = (np.asarray(step(w, x, y).addressable_data(0)) for step in (by_jit, by_shard_map))
    np.testing.assert_allclose(one, other, rtol=1e-5)
    return one


def tensorflow(rank, size):
    import keras
    import tensorflow as tf
    from tensorflow.python.distribute.collective_all_reduce_strategy import (
        CollectiveAllReduceExtended,
    )

    CollectiveAllReduceExtended._enable_check_health = (
        False  # which has a process wait for its peers when it ends
    )
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    workers = tf.train.ClusterSpec(
        {"worker": [f"{host}:{port + 1 + each}" for each in range(size)]}
    )
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        workers, task_type="worker", task_id=rank, rpc_layer="grpc"
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    dist.barrier()
    with strategy.scope():
        net = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, use_bias=False)])
        net.compile(keras.optimizers.SGD(RATE), "mse")
        net.set_weights([W])

    def of_replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((net(x, training=True) - y) ** 2) / size
        gradients = tape.gradient(loss, net.trainable_variables)
        net.optimizer.apply(
            gradients, net.trainable_variables
        )  # which adds up those of all processes

    given = [
        strategy.experimental_distribute_values_from_function(
            lambda context, rows=rows: tf.constant(rows)
        )
        for rows in data(rank)
    ]
    tf.function(lambda x, y: strategy.run(of_replica, args=(x, y)))(*given)
    found = np.asarray(net.get_weights()[0])
    try:
        net.fit(*data(rank), verbose=0)
    except ValueError as error:
        assert "PerReplica" in str(error), error
    else:
        raise AssertionError("fit() works under the strategy")
    return found


def mxnet(rank, size):
    mx = xdevice.backend().framework
    mx.npx.set_np()
    net = mx.gluon.nn.Dense(1, use_bias=False, in_units=3)
    net.initialize()
    net.weight.set_data(mx.np.array(W.T))
    # MXNet has one distributed store in a process, which is xdevice's: the Trainer's own update, our sum
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": RATE}, kvstore=None)
    x, y = map(mx.np.array, data(rank))
    with mx.autograd.record():
        loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    for parameter in net.collect_params().values():
        parameter.grad()[:] = dist.all_reduce(parameter.grad(), "mean")
    trainer.update(1)
    return net.weight.data().asnumpy().T


def main():
    with dist.process_group(20, start=60):
        rank, size = dist.rank(), dist.world_size()
        found = globals()[str(xdevice.backend())](rank, size)
        np.testing.assert_allclose(found, wanted(size), rtol=1e-5)
        assert (
            xdevice.to_numpy(dist.all_reduce(xdevice.ones(2))).tolist() == [size] * 2
        )  # ours goes on beside it
    sys.stdout.write("the same\n")


if __name__ == "__main__":
    main()
