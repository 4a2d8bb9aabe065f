"""PyTorch's own words for what the contract suite needs."""

import torch


def ones():
    return torch.ones(2, 3)


def address(x):
    return x.data_ptr()


def write(x, value):
    x.fill_(value)


def owned():
    return [
        torch.ones(1),
        torch.nn.Parameter(torch.ones(1)),
        torch.ones(3)[0],
        torch.nn.Buffer(torch.ones(1)),
        torch.ones(2, requires_grad=True) * 2,
    ]


def parameter(frozen=False):
    return torch.nn.Parameter(torch.ones(2, 3), requires_grad=not frozen)


def is_frozen(parameter):
    return not parameter.requires_grad


def model():
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))


def output(model, x):
    return model(x)


def parameters(model):
    return list(model.parameters())


def gradient(move):
    """The gradient of sum(2 * move(x)) with respect to x, which is 2 everywhere."""
    x = torch.ones(3, requires_grad=True)
    (2 * move(x)).sum().backward()
    return x.grad.tolist()


def mixing_gradient(x, y):
    """A backward pass in which x's gradient meets y."""

    class Mixing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient + y

    x.requires_grad_()
    return Mixing.apply(x).sum().backward


def native_devices():
    return [(torch.device("cpu"), "cpu:0"), (torch.device("cpu", 0), "cpu:0"), (torch.device("cuda", 3), "gpu:3")]
