"""A training loop that is slow on a GPU, and the loop after the changes that its report suggests.

    xdevice watch --gpus 2 --backend torch examples/transfers.py
    xdevice watch --gpus 2 --backend torch examples/transfers.py --mended

Without a GPU, the first command reports the lines that copy between the host and the device, and what to
write instead. The second runs the corrected loop. Both print the same losses. The script names no framework
and fits a line to points in 16 dimensions. NumPy has no gradients: the script prints that and ends.
"""

import argparse

import _needed  # noqa: F401  (says what is not installed)
import numpy as np

import xdevice
from xdevice import cpu, device_of, namespace, ones, tensor, to_device, try_gpu, value_and_grad

INPUTS, BATCH, BATCHES, EPOCHS, RATE = 16, 32, 12, 3, 0.05


def train(params, batches, scale, device):
    """One epoch with common mistakes."""
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
    """The same epoch with data that is already on the device; the loss is read once."""
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
    """Batches of points with their values, and the scale of each dimension, on the host."""
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
    params = {
        "w": xdevice.zeros((INPUTS, 1), device=device),
        "b": xdevice.zeros((1, 1), device=device),
    }
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
