"""PyTorch's own words for what the contract suite needs."""

import warnings

import torch
from functorch.compile import make_boxed_func, nop
from torch._dynamo.backends.common import aot_autograd


def ones():
    return torch.ones(2, 3)


def address(x):
    return x.data_ptr()


def write(x, value):
    x.fill_(value)


def owned():
    made = [
        torch.ones(1),
        torch.nn.Parameter(torch.ones(1)),
        torch.ones(3)[0],
        torch.ones(2, requires_grad=True) * 2,
    ]
    return (
        [*made, torch.nn.Buffer(torch.ones(1))] if hasattr(torch.nn, "Buffer") else made
    )  # it came with torch 2.5


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


def compiled_loss():
    compilations = []

    def counting(module, inputs):  # what the default compiler does, but for the C++
        compilations.append(module)
        return make_boxed_func(module.forward)

    backend = aot_autograd(fw_compiler=counting, bw_compiler=nop)
    compiled = torch.compile(lambda p, x: ((x @ p["w"] + p["b"]) ** 2).sum(), backend=backend)

    def loss(p, x):
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # the compiler asks a tensor that is not a leaf for its .grad
            return compiled(p, x)

    return loss, compilations


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
    return [
        (torch.device("cpu"), "cpu:0"),
        (torch.device("cpu", 0), "cpu:0"),
        (torch.device("cuda", 3), "gpu:3"),
    ]
