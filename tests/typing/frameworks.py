"""Frameworks that ship types: their devices and tensors are accepted. Checked by mypy and pyright, never run."""

import jax
import mxnet
import paddle
import tensorflow
import torch

import xdevice

x: torch.Tensor = xdevice.ones(
    2, device=torch.device("cpu")
)  # a result is of the chosen framework: any
y: jax.Array = xdevice.full((2, 3), 1, device=jax.devices()[0])
xdevice.zeros(3, device=x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a tensor is not a device


for place in (
    torch.device("cuda", 1),
    jax.devices()[0],
    paddle.CPUPlace(),
    paddle.CUDAPlace(1),
    mxnet.gpu(1),
):
    xdevice.to_device(x, place)
xdevice.to_device(x, x.device)
xdevice.to_device(paddle.ones([3]), paddle.ones([3]).place)
xdevice.to_device(x, tensorflow.config.list_logical_devices()[0])
with xdevice.scope(torch.device("cpu")):
    z: torch.Tensor = xdevice.to_device(x, "cpu")
xdevice.to_device(torch.device("cpu"), x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.to_device("cpu", y)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xdevice.to_device("cpu", paddle.ones([3]))  # pyright: ignore[reportArgumentType]  # mypy leaves Paddle's types out

xp = xdevice.namespace(x)
xp.where(xp.greater(x, 0), x, 0.0)
xp.matmul(y, y)
xp.reshape((3, 2), x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xp.concat((x, x), 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # axis is by name
