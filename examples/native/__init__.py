"""The code of the lessons that differs by framework, with one file for each framework.

``native.linear`` is ``linear`` in the file with the chosen framework's name. Each file has

- ``linear(weight, bias)``: a layer of the framework that computes ``x @ weight + bias``;
- ``parameters(model)``: its tensors by name, ``weight`` in the framework's own shape;
- ``norm(x)``, ``stack(tensors)``: the Frobenius norm, and scalars stacked into a vector;
- ``classifier(inputs, hidden, classes)``: a network with one hidden layer and random weights;
- ``trainer(net, rate)``: a function that takes a minibatch, updates the net, and returns the loss;
- ``convolution(x, weight, bias)``, ``average_pooling(x)``: for images with axes for channels, rows and
  columns, without padding; the pooling averages 2 × 2 pixels;
- ``compiled(function)``: the function, compiled if the framework is slow without compilation.

NumPy and JAX have no class for models: there a model is a dataclass of tensors, which is a tree like
any other.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import xdevice


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    chosen = xdevice.backend()
    # Import the framework through xdevice first, because some need it. See native/mxnet.py.
    _ = chosen.framework
    return getattr(import_module(f"native.{chosen}"), name)
