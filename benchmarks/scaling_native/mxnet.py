"""MXNet: `gluon.Trainer` with the key-value stores `dist_sync` and `device`."""

from __future__ import annotations

from typing import Any

import mxnet as mx
from mxnet import autograd, gluon, np, npx

from scaling_native import Task, Training

VIRTUAL = True
THREADS = True
npx.set_np()


def alone(task: Task) -> Training:
    return _training([mx.cpu(0)], None, task)


def processes(task: Task) -> Training:
    from xdevice.backends.mxnet import engine

    return _training([mx.cpu(0)], _Named(engine._store._native.handle), task)


def devices(task: Task) -> Training:
    return _training([mx.cpu(1), mx.cpu(2)], "device", task)


class _Named(mx.kv.KVStore):
    """Another handle of xdevice's store: a process can have one distributed store.

    The store's keys are strings, and it does not accept numbers beside them,
    which the Trainer uses. The servers have no optimizer, so the workers take
    the step.
    """

    def __del__(self) -> None:
        pass  # the first handle frees the store

    def broadcast(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        super().broadcast(f"native {key}", value, out, priority)

    def pushpull(self, key: int, value: Any, out: Any = None, priority: int = 0) -> None:
        super().pushpull(f"native {key}", value, out, priority)


def compiled(function: Any) -> Any:
    return function


def _training(contexts: list[Any], store: Any, task: Task) -> Training:
    parameters = {name: _parameter(name, values, contexts) for name, values in task.params.items()}
    trainer = gluon.Trainer(
        list(parameters.values()),
        "sgd",
        {"learning_rate": task.rate},
        kvstore=store,
        update_on_kvstore=False,
    )
    if isinstance(store, mx.kv.KVStore):
        # Otherwise the first step requests the weights and sends gradients
        # under the same keys at the same time, and some processes get the sum
        # of the gradients as their weights (MXNet 1.9.1).
        trainer._init_kvstore()
        trainer._init_params()
        mx.nd.waitall()
        parts = len(contexts) * store.num_workers
    else:
        parts = len(contexts)
    host = np.array(task.images, ctx=mx.cpu(0)), np.array(task.labels, ctx=mx.cpu(0))

    def step() -> None:
        shards = [_split_and_load(array, contexts) for array in host]
        with autograd.record():
            losses = [loss(_on(x.ctx, parameters), x, y) for x, y in zip(*shards, strict=True)]
        autograd.backward(losses)
        trainer.step(parts)  # divides the sum of the parts' mean gradients

    return Training(
        step,
        mx.nd.waitall,
        lambda: {name: p.data(contexts[0]).asnumpy() for name, p in parameters.items()},
    )


def _split_and_load(array: Any, contexts: list[Any]) -> list[Any]:
    """As `gluon.utils.split_and_load`, which fails beside NumPy 2 (MXNet 1.9.1)."""
    rows = len(array) // len(contexts)
    return [
        array[i * rows : (i + 1) * rows].as_in_ctx(context) for i, context in enumerate(contexts)
    ]


def _parameter(name: str, values: Any, contexts: list[Any]) -> Any:
    parameter = gluon.Parameter(name, shape=values.shape)
    parameter.initialize(mx.init.Constant(np.array(values)), ctx=contexts)
    return parameter


def _on(context: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters' arrays on one of their devices."""
    return {name: parameter.data(context) for name, parameter in parameters.items()}


def loss(p: dict[str, Any], x: Any, labels: Any) -> Any:
    h = _pooled(npx.relu(npx.convolution(x, p["W1"], p["b1"], kernel=(3, 3), num_filter=20)))
    h = _pooled(npx.relu(npx.convolution(h, p["W2"], p["b2"], kernel=(5, 5), num_filter=50)))
    h = npx.relu(np.dot(h.reshape(len(h), -1), p["W3"]) + p["b3"])
    scores = npx.log_softmax(np.dot(h, p["W4"]) + p["b4"])
    return -npx.pick(scores, labels[:, 0]).mean()


def _pooled(x: Any) -> Any:
    return npx.pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="avg")
