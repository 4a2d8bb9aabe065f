"""What a user's checker sees of the public names: checked by mypy and pyright, never run."""

from typing import Any

import numpy as np

import xdevice
from xdevice.typing import DeviceLike, Namespace, Tensor

d: xdevice.Device = xdevice.try_gpu()
ds: list[xdevice.Device] = xdevice.try_all_gpus()
n: int = xdevice.count("gpu")
x: list[int] = xdevice.to_device([1], "cpu", copy=True)
same: bool = xdevice.is_same_device(1, 2)
host: np.ndarray[Any, Any] = xdevice.to_numpy(1)
other: Any = xdevice.convert(host, "torch")
alike: Any = xdevice.convert(host, like=other)
both: tuple[Any, ...] = xdevice.convert(host, None, like=other, device="cpu")
times: list[float] = xdevice.Timer().times
name: str = xdevice.backend()

with (
    xdevice.using("numpy") as chosen,
    xdevice.scope("gpu:1") as device,
    xdevice.cpu() as host_device,
):
    _: tuple[str, xdevice.Device, xdevice.Device] = (chosen, device, host_device)


@xdevice.find_batch_size(start=64)
def train(batch_size: int) -> int:
    return batch_size


found: int = train()

xdevice.try_gpus()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # a misspelt name

# arguments in the wrong order, and of the wrong type

xdevice.full((2, 3), 7.0, device=d)
xdevice.full(7.0, (2, 3))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.zeros((2, 3), "cpu")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.ones(2, device=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.arange("5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.ones(2, devise="cpu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# so where tensors are moved, asked and kept

w = np.ones(3)
moved: np.ndarray[Any, Any] = xdevice.to_device(w, d)
xdevice.to_device("gpu", w)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.to_device(d, [w, w])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.to_device(w, devise="gpu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
xdevice.device_of(w, w)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
xdevice.devices_of("cpu", w)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
xdevice.to_device(w, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.convert(w, "torch", device=0)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
xdevice.split_batch(w, [d, "gpu:1"])
xdevice.split_batch([d, d], w)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.replicate(w, d)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.memory_stats(w)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.properties(0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.synchronize(d, w)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.native(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.as_device(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.save("net.safetensors", w)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.load("net.safetensors", w)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
with xdevice.scope(w):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pass


def on(where: DeviceLike = "cpu") -> xdevice.Device:
    return xdevice.as_device(where)


on(d), on("gpu:1"), on(2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportUnusedExpression]

# the differentiated function has the parameters of its function


def loss(weights: Tensor, rate: float) -> Tensor:
    return weights


step = xdevice.value_and_grad(loss)
step(w, 0.1)
step(w, "0.1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
step(w)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
owner: str = xdevice.backend_of(w)
xdevice.zeros(2, like=w)
xdevice.zeros(2, likes=w)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

numbers: list[float] = list(xdevice.prefetch([1.5], "gpu:0", 2, pin=True))
xdevice.prefetch([w], d, pinned=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
settings: dict[str, dict[str, str]] = xdevice.share_gpus(0.5)
xdevice.share_gpus("half")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def twice(x: Tensor, xp: Namespace) -> Tensor:
    return xp.multiply(x, 2)


twice(w, xdevice.namespace(w, None))

# a namespace has the standard's names, with their parameters

xp, array = xdevice.namespace(), np.ones((2, 3))
xp.__array_namespace_info__().dtypes(device="gpu:0", kind=("bool", "real floating"))
xp.__array_namespace_info__().dtypes(kind="floating")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xp.reshape(xp.exp(array), (3, 2))
xp.reshape((3, 2), array)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xp.concatt([array, array])  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
xp.sum(array, axes=0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
xp.linalg.inverse(array)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
