"""Frameworks that ship types: their devices and tensors are accepted. Checked by mypy and pyright, never run."""

import jax
import torch

import xdevice

x: torch.Tensor = xdevice.ones(2, device=torch.device("cpu"))  # a result is of the chosen framework: any
y: jax.Array = xdevice.full((2, 3), 1, device=jax.devices()[0])
xdevice.zeros(3, device=x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a tensor is not a device

xp = xdevice.namespace(x)
xp.where(xp.greater(x, 0), x, 0.0)
xp.matmul(y, y)
xp.reshape((3, 2), x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
xp.concat((x, x), 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]  # axis is by name
