"""TensorFlow: `MultiWorkerMirroredStrategy`; on devices, `MirroredStrategy`."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

from scaling_native import Task, Training, no_wait
from xdevice import distributed

VIRTUAL = True
THREADS = True
compiled = tf.function


def alone(task: Task) -> Training:
    return _training(tf.distribute.get_strategy(), task, once=True)


def processes(task: Task) -> Training:
    rank, size = int(os.environ["XDEVICE_RANK"]), int(os.environ["XDEVICE_WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    workers = tf.train.ClusterSpec(
        {"worker": [f"{host}:{port + 1 + each}" for each in range(size)]}
    )
    # With the checks of health, which run every 30 s, a process that ends waits
    # for its peers.
    CollectiveAllReduceExtended._enable_check_health = False
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        workers, task_type="worker", task_id=rank, rpc_layer="grpc"
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    # The strategy resets the state of this process's server, and requests that a
    # faster process had sent before would be lost.
    distributed.barrier()
    return _training(strategy, task, once=True)


def devices(task: Task) -> Training:
    strategy = tf.distribute.MirroredStrategy(
        [device.name for device in tf.config.list_logical_devices("CPU")[-2:]]
    )
    return _training(strategy, task, once=False)


def _training(strategy: Any, task: Task, once: bool) -> Training:
    with strategy.scope():
        weights = {name: tf.Variable(values, name=name) for name, values in task.params.items()}

    def descend(strategy: Any, gradients: Any) -> None:
        for variable, gradient in zip(weights.values(), gradients, strict=True):
            strategy.extended.update(
                variable, lambda v, g: v.assign_sub(task.rate * g), args=(gradient,)
            )

    def of_replica(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            value = loss(weights, x, y)
        gradients = tape.gradient(value, list(weights.values()))
        context = tf.distribute.get_replica_context()
        if strategy.num_replicas_in_sync > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        context.merge_call(descend, args=(gradients,))

    train = tf.function(lambda x, y: strategy.run(of_replica, args=(x, y)))
    batch = _distributed(strategy, task, 1) if once else None

    def step() -> None:
        train(*(batch or _distributed(strategy, task, strategy.num_replicas_in_sync)))

    def parameters() -> dict[str, Any]:
        local = strategy.experimental_local_results
        return {name: local(variable)[0].numpy() for name, variable in weights.items()}

    return Training(step, no_wait, parameters)


def _distributed(strategy: Any, task: Task, parts: int) -> list[Any]:
    """Images and labels, a part of the rows on each of this process's replicas."""
    rows = len(task.images) // parts

    def values(array: Any) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.convert_to_tensor(
                array[context.replica_id_in_sync_group % parts * rows :][:rows]
            )
        )

    return [values(task.images), values(task.labels)]


def loss(p: dict[str, Any], x: Any, labels: Any) -> Any:
    h = _pooled(tf.nn.relu(_convolved(x, p["W1"], p["b1"])))
    h = _pooled(tf.nn.relu(_convolved(h, p["W2"], p["b2"])))
    h = tf.nn.relu(tf.reshape(h, [h.shape[0], -1]) @ p["W3"] + p["b3"])
    scores = h @ p["W4"] + p["b4"]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels[:, 0], scores))


# The images have the course's order of axes, channels before rows;
# TensorFlow's CPU wants them last.


def _convolved(x: Any, weight: Any, bias: Any) -> Any:
    y = tf.nn.conv2d(tf.transpose(x, [0, 2, 3, 1]), tf.transpose(weight, [2, 3, 1, 0]), 1, "VALID")
    return tf.transpose(y + bias, [0, 3, 1, 2])


def _pooled(x: Any) -> Any:
    return tf.transpose(
        tf.nn.avg_pool2d(tf.transpose(x, [0, 2, 3, 1]), 2, 2, "VALID"), [0, 3, 1, 2]
    )
