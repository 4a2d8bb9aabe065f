"""What a lesson cannot say for every framework at once; each file here says it in one framework's words.

``native.linear`` is ``linear`` of the file that has the chosen framework's name. Each file offers

- ``linear(weight, bias)``: a layer of its own kind that computes ``x @ weight + bias``;
- ``parameters(model)``: its tensors by name, ``weight`` in the shape that the framework keeps it in;
- ``norm(x)``, ``stack(tensors)``: the Frobenius norm, and scalars gathered in one vector;
- ``classifier(inputs, hidden, classes)``: a network with one hidden layer, its weights random;
- ``trainer(net, rate)``: a function that takes a minibatch, improves the net, and returns the loss;
- ``convolution(x, weight, bias)``, ``average_pooling(x)``: of images by channels, rows and columns, without
  padding; the pooling takes 2 × 2 pixels to one;
- ``compiled(function)``: the function, compiled where the framework computes one call at a time slowly.

NumPy and JAX have no class for models: there a dataclass of tensors is the model, a tree like any
other.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import xdevice


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    chosen = xdevice.backend()
    # First the framework, by way of xdevice: some can only be imported with care. See native/mxnet.py.
    _ = chosen.framework
    return getattr(import_module(f"native.{chosen}"), name)
