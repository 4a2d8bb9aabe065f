"""PaddlePaddle: layers, a training step, convolution and pooling."""

import paddle
from paddle import nn


def linear(weight, bias):
    layer = nn.Linear(len(weight), len(bias))
    layer.weight.set_value(paddle.to_tensor(weight))
    layer.bias.set_value(paddle.to_tensor(bias))
    return layer


def parameters(model):
    return dict(model.named_parameters())


def norm(x):
    return paddle.linalg.norm(x)


def stack(tensors):
    return paddle.stack(tensors)


def classifier(inputs, hidden, classes):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def trainer(net, rate):
    optimizer = paddle.optimizer.SGD(rate, net.parameters())

    def step(x, labels):
        loss = nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss.detach()

    return step


def convolution(x, weight, bias):
    return nn.functional.conv2d(x, weight, bias)


def average_pooling(x):
    return nn.functional.avg_pool2d(x, 2, 2)


def compiled(function):
    return function
