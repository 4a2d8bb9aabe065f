"""PaddlePaddle: `paddle.DataParallel` over gloo."""

from __future__ import annotations

import os
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional

from scaling_native import Task, Training, no_wait

VIRTUAL = False
THREADS = False
NO_DEVICES = "paddle.DataParallel has one device for each process"


class LeNet(nn.Layer):
    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__()
        for name, values in params.items():
            value = nn.initializer.Assign(values)
            self.add_parameter(name, self.create_parameter(values.shape, default_initializer=value))

    def forward(self, x: Any, labels: Any) -> Any:
        return loss(dict(self.named_parameters()), x, labels)


def loss(p: dict[str, Any], x: Any, labels: Any) -> Any:
    h = functional.avg_pool2d(functional.relu(functional.conv2d(x, p["W1"], p["b1"])), 2, 2)
    h = functional.avg_pool2d(functional.relu(functional.conv2d(h, p["W2"], p["b2"])), 2, 2)
    h = functional.relu(h.flatten(1) @ p["W3"] + p["b3"])
    return functional.cross_entropy(h @ p["W4"] + p["b4"], labels)


def alone(task: Task) -> Training:
    net = LeNet(task.params)
    return _training(net, net, task)


def processes(task: Task) -> Training:
    rank, size = int(os.environ["XDEVICE_RANK"]), int(os.environ["XDEVICE_WORLD_SIZE"])
    os.environ["PADDLE_TRAINERS_NUM"], os.environ["PADDLE_TRAINER_ID"] = str(size), str(rank)
    os.environ["PADDLE_CURRENT_ENDPOINT"] = os.environ["MASTER_ADDR"]  # has to be set
    os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    paddle.distributed.init_parallel_env()
    net = LeNet(task.params)
    return _training(net, paddle.DataParallel(net), task)


def compiled(function: Any) -> Any:
    return function


def _training(net: Any, wrapped: Any, task: Task) -> Training:
    optimizer = paddle.optimizer.SGD(task.rate, parameters=net.parameters())
    x, y = paddle.to_tensor(task.images), paddle.to_tensor(task.labels)

    def step() -> None:
        wrapped(x, y).backward()
        optimizer.step()
        optimizer.clear_grad()

    return Training(step, no_wait, lambda: {name: p.numpy() for name, p in net.named_parameters()})
