"""MXNet: Gluon layers, and its autograd.

MXNet's last release uses names that newer versions of NumPy have removed. ``xdevice.backend().framework`` adds
them to NumPy while it imports MXNet, so let xdevice do that first; then ``import mxnet`` works.
"""

from mxnet import autograd, gluon, init, np, npx
from mxnet.gluon import nn

npx.set_np()  # Gluon's layers accept and return NumPy-like arrays, which xdevice creates


def linear(weight, bias):
    layer = nn.Dense(len(bias), in_units=len(weight))
    layer.initialize()
    layer.weight.set_data(np.array(weight).T)  # stored as (outputs, inputs)
    layer.bias.set_data(np.array(bias))
    return layer


def parameters(model):
    return {"weight": model.weight.data(), "bias": model.bias.data()}


def norm(x):
    return np.linalg.norm(x)


def stack(tensors):
    return np.stack(tensors)


def classifier(inputs, hidden, classes):
    net = nn.Sequential()
    net.add(
        nn.Dense(hidden, activation="relu", in_units=inputs), nn.Dense(classes, in_units=hidden)
    )
    net.initialize(init.Xavier())
    return net


def trainer(net, rate):
    optimizer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate})
    cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()

    def step(x, labels):
        with autograd.record():
            loss = cross_entropy(net(x), labels).mean()
        loss.backward()
        optimizer.step(1)  # the divisor of the gradient: the loss is already a mean
        return loss

    return step


def convolution(x, weight, bias):
    return npx.convolution(x, weight, bias, kernel=weight.shape[2:], num_filter=len(weight))


def average_pooling(x):
    return npx.pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="avg")


def compiled(function):
    return function
