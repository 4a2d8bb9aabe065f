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
    """A second owner of the store that is there: a process can have one that is distributed.

    Its keys are words, and the Trainer's are numbers, which one store does not
    take both. Its servers know no optimizer, so the workers do the step.
    """

    def __del__(self) -> None:
        pass  # the store is the first owner's

    def broadcast(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        super().broadcast(f"native {key}", value, out, priority)

    def pushpull(self, key: int, value: Any, out: Any = None, priority: int = 0) -> None:
        super().pushpull(f"native {key}", value, out, priority)


def compiled(function: Any) -> Any:
    return function


def _training(contexts: list[Any], store: Any, task: Task) -> Training:
    own = {name: _parameter(name, values, contexts) for name, values in task.params.items()}
    by_name = list(own.values())
    trainer = gluon.Trainer(
        by_name, "sgd", {"learning_rate": task.rate}, kvstore=store, update_on_kvstore=False
    )
    if isinstance(store, mx.kv.KVStore):
        # else the first step asks for the weights and sends gradients to the
        # same keys at once, and now and then a process gets the gradients' sum
        # for its weights (MXNet 1.9.1)
        trainer._init_kvstore()
        trainer._init_params()
        mx.nd.waitall()
    parts = len(contexts) * (store.num_workers if isinstance(store, mx.kv.KVStore) else 1)
    host = np.array(task.images, ctx=mx.cpu(0)), np.array(task.labels, ctx=mx.cpu(0))

    def step() -> None:
        shards = [_split_and_load(array, contexts) for array in host]
        with autograd.record():
            losses = [loss(_on(x.ctx, own), x, y) for x, y in zip(*shards, strict=True)]
        autograd.backward(losses)
        trainer.step(parts)  # which adds up the means of all

    return Training(
        step,
        mx.nd.waitall,
        lambda: {name: p.data(contexts[0]).asnumpy() for name, p in own.items()},
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


def _on(ctx: Any, own: dict[str, Any]) -> dict[str, Any]:
    return {name: parameter.data(ctx) for name, parameter in own.items()}


def loss(p: dict[str, Any], x: Any, labels: Any) -> Any:
    h = _pooled(npx.relu(npx.convolution(x, p["W1"], p["b1"], kernel=(3, 3), num_filter=20)))
    h = _pooled(npx.relu(npx.convolution(h, p["W2"], p["b2"], kernel=(5, 5), num_filter=50)))
    h = npx.relu(np.dot(h.reshape(len(h), -1), p["W3"]) + p["b3"])
    scores = npx.log_softmax(np.dot(h, p["W4"]) + p["b4"])
    return -npx.pick(scores, labels[:, 0]).mean()


def _pooled(x: Any) -> Any:
    return npx.pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="avg")
