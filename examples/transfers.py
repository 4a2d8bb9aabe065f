"""A training loop that is slow on a GPU, and the one that its report leads to.

    xdevice run --watch-transfers --virtual-gpus 2 --backend torch examples/transfers.py
    xdevice run --watch-transfers --virtual-gpus 2 --backend torch examples/transfers.py --mended

The first command names, without a GPU, the lines that copy between the host and the device, and says what to write
instead. The second runs the loop in which that is written. Both print the same losses. The script names no framework,
and fits a line through points in 16 dimensions; NumPy has no gradients, so it prints that and ends.
"""

import argparse

import _needed  # noqa: F401  (says what is not installed)
import numpy as np

import xdevice
from xdevice import (
    cpu,
    device_of,
    namespace,
    ones,
    tensor,
    to_device,
    try_gpu,
    value_and_grad,
    zeros,
)

INPUTS, BATCH, BATCHES, EPOCHS, RATE = 16, 32, 12, 3, 0.05


def train(params, batches, scale, device):
    """One epoch, as many write it."""
    total = 0.0
    for points, values in batches:
        x, y = to_device(points, device), to_device(values, device)
        shift = to_device(ones((BATCH, 1)), device)
        factors = to_device(scale, device)
        with device:
            loss, gradients = value_and_grad(mean_square)(params, x * factors, shift, y)
            params = {name: params[name] - RATE * gradients[name] for name in params}
        total += float(loss)
    return params, total / BATCHES


def train_mended(params, batches, factors, shift):
    """The same epoch, on what is on the device already; the loss is read once."""
    losses = []
    with device_of(shift):
        for x, y in batches:
            loss, gradients = value_and_grad(mean_square)(params, x * factors, shift, y)
            params = {name: params[name] - RATE * gradients[name] for name in params}
            losses.append(loss)
        xp = namespace(loss)
        mean = xp.mean(xp.stack(losses))
    return params, float(mean)


def mean_square(params, x, shift, y):
    xp = namespace(x)
    return xp.mean((xp.matmul(x, params["w"]) + shift * params["b"] - y) ** 2)


def data():
    """Batches of points and their values, and the scale of each dimension, on the host."""
    random = np.random.default_rng(0)
    scale = np.linspace(0.5, 1.5, INPUTS)
    points = random.normal(size=(BATCHES, BATCH, INPUTS))
    values = (points * scale) @ random.normal(size=(INPUTS, 1)) + 3
    return [(on_host(x), on_host(y)) for x, y in zip(points, values, strict=True)], on_host(scale)


def on_host(array):
    return tensor(array.astype("float32"), device=cpu())


def main():
    parser = argparse.ArgumentParser(description="Train with and without copies in each step.")
    parser.add_argument("--mended", action="store_true", help="the loop that the report leads to")
    mended = parser.parse_args().mended
    device = try_gpu()
    batches, scale = data()
    params = {"w": zeros((INPUTS, 1), device=device), "b": zeros((1, 1), device=device)}
    if mended:
        batches, scale = to_device((batches, scale), device)
    shift = ones((BATCH, 1), device=device)
    for epoch in range(EPOCHS):
        if mended:
            params, loss = train_mended(params, batches, scale, shift)
        else:
            params, loss = train(params, batches, scale, device)
        print(f"epoch {epoch}: loss {loss:.4f} on {device}")


if __name__ == "__main__":
    try:
        main()
    except xdevice.NotSupportedError as error:
        print(f"Not supported: {error}")
