"""What a user's checker sees of the public names: checked by mypy and pyright, never run."""

from typing import Any

import numpy as np

import xdevice

d: xdevice.Device = xdevice.try_gpu()
ds: list[xdevice.Device] = xdevice.try_all_gpus()
n: int = xdevice.count("gpu")
x: list[int] = xdevice.to_device([1], "cpu", copy=True)
same: bool = xdevice.is_same_device(1, 2)
host: np.ndarray[Any, Any] = xdevice.to_numpy(1)
other: Any = xdevice.convert(host, "torch")
times: list[float] = xdevice.Timer().times
name: str = xdevice.backend()

with xdevice.using("numpy") as chosen, xdevice.scope("gpu:1") as device, xdevice.cpu() as host_device:
    _: tuple[str, xdevice.Device, xdevice.Device] = (chosen, device, host_device)


@xdevice.find_batch_size(start=64)
def train(batch_size: int) -> int:
    return batch_size


found: int = train()

xdevice.try_gpus()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # a misspelt name
