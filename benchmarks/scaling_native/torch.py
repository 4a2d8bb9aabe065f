"""PyTorch: `DistributedDataParallel` over gloo."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from scaling_native import Task, Training, no_wait

VIRTUAL = False
THREADS = True
NO_DEVICES = "nn.DataParallel is for CUDA alone"


class LeNet(nn.Module):
    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__()
        for name, values in params.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(values)))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return loss(dict(self.named_parameters()), x, labels)


def loss(p: dict[str, torch.Tensor], x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    h = functional.avg_pool2d(functional.relu(functional.conv2d(x, p["W1"], p["b1"])), 2)
    h = functional.avg_pool2d(functional.relu(functional.conv2d(h, p["W2"], p["b2"])), 2)
    h = functional.relu(h.flatten(1) @ p["W3"] + p["b3"])
    return functional.cross_entropy(h @ p["W4"] + p["b4"], labels[:, 0])


def alone(task: Task) -> Training:
    net = LeNet(task.params)
    return _training(net, net, task)


def processes(task: Task) -> Training:
    net = LeNet(task.params)
    return _training(net, DistributedDataParallel(net), task)


def compiled(function: Any) -> Any:
    return function


def _training(net: nn.Module, wrapped: nn.Module, task: Task) -> Training:
    optimizer = torch.optim.SGD(net.parameters(), task.rate)
    x, y = torch.tensor(task.images), torch.tensor(task.labels)

    def step() -> None:
        optimizer.zero_grad()
        wrapped(x, y).backward()
        optimizer.step()

    return Training(
        step, no_wait, lambda: {name: p.detach().numpy() for name, p in net.named_parameters()}
    )
