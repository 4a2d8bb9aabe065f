"""PyTorch: layers, a training step, convolution and pooling."""

import torch
from torch import nn


def linear(weight, bias):
    weight = torch.tensor(weight)
    layer = nn.Linear(*weight.shape)
    with torch.no_grad():
        layer.weight.copy_(weight.T)  # stored as (outputs, inputs)
        layer.bias.copy_(torch.tensor(bias))
    return layer


def parameters(model):
    return dict(model.named_parameters())


def norm(x):
    return torch.linalg.norm(x)


def stack(tensors):
    return torch.stack(tensors)


def classifier(inputs, hidden, classes):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def trainer(net, rate):
    optimizer = torch.optim.SGD(net.parameters(), rate)

    def step(x, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def convolution(x, weight, bias):
    return nn.functional.conv2d(x, weight, bias)


def average_pooling(x):
    return nn.functional.avg_pool2d(x, 2)


def compiled(function):
    return function
