"""JAX: one `jit` over arrays with a `NamedSharding`, over the devices of one process or of all."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from scaling_native import Task, Training

VIRTUAL = True
THREADS = True


def alone(task: Task) -> Training:
    return _training(_sharded(jax.local_devices(backend="cpu")[:1]), task, once=True)


def processes(task: Task) -> Training:
    firsts = {device.process_index: device for device in reversed(jax.devices("cpu"))}
    return _training(_sharded([firsts[rank] for rank in sorted(firsts)]), task, once=True)


def devices(task: Task) -> Training:
    return _training(_sharded(jax.local_devices(backend="cpu")[-2:]), task, once=False)


def compiled(function: Any) -> Any:
    return jax.jit(function)


def _sharded(devices: list[Any]) -> tuple[NamedSharding, NamedSharding]:
    """The shardings of the rows and of the parameters over these devices."""
    mesh = Mesh(np.array(devices), ("rows",))
    return NamedSharding(mesh, PartitionSpec("rows")), NamedSharding(mesh, PartitionSpec())


def _training(shardings: tuple[NamedSharding, NamedSharding], task: Task, once: bool) -> Training:
    rows, everywhere = shardings
    data = task.images, task.labels
    state = {
        name: jax.make_array_from_process_local_data(everywhere, values)
        for name, values in task.params.items()
    }
    batch = (
        [jax.make_array_from_process_local_data(rows, array) for array in data] if once else None
    )

    @jax.jit
    def updated(state: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(state, x, y)
        return jax.tree.map(lambda p, g: p - task.rate * g, state, gradients)

    def step() -> None:
        nonlocal state
        state = updated(state, *(batch or jax.device_put(data, rows)))

    def parameters() -> dict[str, Any]:
        return {name: np.asarray(values.addressable_data(0)) for name, values in state.items()}

    return Training(step, lambda: jax.block_until_ready(state), parameters)


def loss(p: dict[str, Any], x: Any, labels: Any) -> Any:
    h = _pooled(jax.nn.relu(_convolved(x, p["W1"], p["b1"])))
    h = _pooled(jax.nn.relu(_convolved(h, p["W2"], p["b2"])))
    h = jax.nn.relu(h.reshape(len(h), -1) @ p["W3"] + p["b3"])
    scores = jax.nn.log_softmax(h @ p["W4"] + p["b4"])
    return -jnp.take_along_axis(scores, labels, axis=1).mean()


def _convolved(x: Any, weight: Any, bias: Any) -> Any:
    return lax.conv_general_dilated(x, weight, (1, 1), "VALID") + bias[:, None, None]


def _pooled(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
