"""One network on two devices, split by layers, and split by the channels of a layer.

    python examples/model_parallel.py                          the framework that is installed here
    xdevice run --backend all examples/model_parallel.py       all of them, side by side

These are the first two methods of the multi-GPU chapter, for networks that are too large for one
device. Both compute the same network: loss and gradients equal those on one device. On a machine
with fewer than two GPUs the script uses two virtual ones. It names no framework. NumPy has no
gradients and only one device, so under NumPy the script prints that and ends.
"""

import _needed  # noqa: F401  (says what is not installed)
import numpy as np
from _gpus import two_gpus

import xdevice
from xdevice import device_of, scope, tensor, to_device, to_numpy, value_and_grad

SAMPLES, INPUTS, CHANNELS, OUTPUTS = 32, 12, 64, 3


def relu(x):
    return (x + abs(x)) / 2


def squared_error(output, wanted):
    """Half the sum of the squared differences, as a 1 × 1 matrix.

    It uses only operators that all frameworks support.
    """
    difference = output - wanted
    rows, columns = difference.shape
    where = device_of(difference)
    left, right = xdevice.ones((1, rows), device=where), xdevice.ones((columns, 1), device=where)
    return left @ (difference * difference) @ right / 2


# Most frameworks compute on the device of the operands; TensorFlow computes on that of the scope.
def on_one_device(weights, x, wanted):
    with scope(device_of(x)):
        return squared_error(relu(x @ weights["in"]) @ weights["out"], wanted)


def by_layers(weights, x, wanted):
    """The first layer on the first device, the second on the second; activations are copied."""
    first, second = device_of(weights["in"]), device_of(weights["out"])
    with scope(first):
        hidden = relu(x @ weights["in"])
    hidden = to_device(hidden, second)
    with scope(second):
        return squared_error(hidden @ weights["out"], to_device(wanted, second))


def by_channels(parts, x, wanted):
    """Half of the hidden channels on each device; both get the input, and the outputs are summed."""
    home, outputs = device_of(x), []
    for weights in parts:
        here = device_of(weights)
        with scope(here):
            outputs.append(relu(to_device(x, here) @ weights["in"]) @ weights["out"])
    with scope(home):
        return squared_error(sum_of([to_device(output, home) for output in outputs]), wanted)


def sum_of(tensors):
    total, *rest = tensors
    for one in rest:
        total = total + one
    return total


def trained(loss, weights, x, wanted, rate=1e-3):
    """The losses of a few steps of gradient descent; each weight is updated on its own device."""
    step, losses = value_and_grad(loss), []
    for _ in range(10):
        value, gradients = step(weights, x, wanted)
        weights = descended(weights, gradients, rate)
        losses.append(to_numpy(value).item())
    return losses


def descended(weights, gradients, rate):
    if isinstance(weights, list):
        return [descended(w, g, rate) for w, g in zip(weights, gradients, strict=True)]
    updated = {}
    for name, weight in weights.items():
        with scope(device_of(weight)):
            updated[name] = weight - rate * gradients[name]
    return updated


def difference(one, other):
    return max(abs(to_numpy(a) - b).max() for a, b in zip(one, other, strict=True))


def main():
    first, second = two_gpus()
    numbers = np.random.default_rng(0)
    w_in = numbers.normal(size=(INPUTS, CHANNELS), scale=0.2).astype("float32")
    w_out = numbers.normal(size=(CHANNELS, OUTPUTS), scale=0.2).astype("float32")
    half = CHANNELS // 2
    x = tensor(numbers.normal(size=(SAMPLES, INPUTS)).astype("float32"), device=first)
    wanted = tensor(numbers.normal(size=(SAMPLES, OUTPUTS)).astype("float32"), device=first)

    whole = {"in": tensor(w_in, device=first), "out": tensor(w_out, device=first)}
    layers = {"in": tensor(w_in, device=first), "out": tensor(w_out, device=second)}
    channels = [
        {"in": tensor(w_in[:, part], device=device), "out": tensor(w_out[part], device=device)}
        for device, part in ((first, slice(None, half)), (second, slice(half, None)))
    ]

    print("One device")
    loss, gradients = value_and_grad(on_one_device)(whole, x, wanted)
    g_in, g_out = to_numpy(gradients["in"]), to_numpy(gradients["out"])
    print(f"  the weights are on {device_of(whole)}, the loss is {to_numpy(loss).item():.4f}")

    print("Two devices, split by layers")
    loss, gradients = value_and_grad(by_layers)(layers, x, wanted)
    print(f"  {device_of(layers['in'])} has the first layer, {device_of(layers['out'])} the second")
    print(f"  the loss is {to_numpy(loss).item():.4f}, on {device_of(loss)}")
    print(
        "  each gradient is beside its weights:",
        all(device_of(gradients[k]) == device_of(layers[k]) for k in layers),
    )
    same = difference([gradients["in"], gradients["out"]], [g_in, g_out])
    print("  gradients equal those of one device:", bool(same < 1e-4))

    print("Two devices, split by channels")
    loss, gradients = value_and_grad(by_channels)(channels, x, wanted)
    print(
        "  "
        + ", ".join(f"{device_of(part)} has {part['in'].shape[1]} channels" for part in channels)
    )
    print(f"  the loss is {to_numpy(loss).item():.4f}, on {device_of(loss)}")
    a, b = gradients
    same = difference(
        [a["in"], b["in"], a["out"], b["out"]],
        [g_in[:, :half], g_in[:, half:], g_out[:half], g_out[half:]],
    )
    print("  gradients equal those of one device:", bool(same < 1e-4))

    print("Ten steps of training")
    for name, loss, weights in (
        ("one device", on_one_device, whole),
        ("by layers", by_layers, layers),
        ("by channels", by_channels, channels),
    ):
        losses = trained(loss, weights, x, wanted)
        print(f"  {name}: the loss falls from {losses[0]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
