"""Training LeNet from scratch on several GPUs.

The same loop runs under every framework, on several devices and in several processes.

    XDEVICE_BACKEND=torch python examples/train_multi_gpu.py --devices 2      one process, two GPUs
    xdevice launch -n 2 --backend torch examples/train_multi_gpu.py           two processes, a GPU each
    xdevice run --backend all examples/train_multi_gpu.py                     all frameworks, side by side

Each device has a copy of all parameters and gets a part of the minibatch. The gradients are summed
over all devices, and each device updates its own copy, so a step on k devices, or in k processes,
equals the step on one device. The script takes its first step both ways and compares.

The digits are the 1797 that come with scikit-learn, scaled up to 28 × 28. The network is LeNet with
the shapes of the course's chapter. Its weights are initialised with the variance that suits ReLUs,
rather than with a scale of 0.01, which takes three times as many epochs on so few digits. On a
machine with too few GPUs the script uses virtual ones, which share the cores. The script names no
framework: convolution and pooling, which have no common name, are in ``native/``. NumPy has no
gradients, so under NumPy the script prints that and ends.
"""

import argparse
import sys
from importlib.util import find_spec

import _needed  # noqa: F401  (says what is not installed)
import native
import numpy as np
from _gpus import ask_for_gpus, gpus
from rich.console import Console
from rich.progress import track
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import xdevice
from xdevice import (
    Replicas,
    all_reduce,
    data_parallel,
    distributed,
    namespace,
    replicate,
    scope,
    split_batch,
    to_numpy,
    value_and_grad,
)

SHAPES = {
    "W1": (20, 1, 3, 3), "b1": (20,),
    "W2": (50, 20, 5, 5), "b2": (50,),
    "W3": (800, 128), "b3": (128,),
    "W4": (128, 10), "b4": (10,),
}  # fmt: skip


# The network, and its loss


def lenet(params, x):
    xp = namespace(x)
    h = native.average_pooling(relu(native.convolution(x, params["W1"], params["b1"])))
    h = native.average_pooling(relu(native.convolution(h, params["W2"], params["b2"])))
    h = xp.reshape(h, (h.shape[0], -1))
    h = relu(xp.matmul(h, params["W3"]) + params["b3"])
    return xp.matmul(h, params["W4"]) + params["b4"]


def relu(x):
    return namespace(x).maximum(x, 0)


def cross_entropy(params, x, labels):
    """The loss, summed over the images, so that the losses of several devices can be added."""
    xp = namespace(x)
    scores = lenet(params, x)
    scores = scores - xp.max(scores, axis=1, keepdims=True)  # otherwise exp overflows
    log_likelihood = scores - xp.log(xp.sum(xp.exp(scores), axis=1, keepdims=True))
    return -xp.sum(xp.take_along_axis(log_likelihood, labels, axis=1))


# The chapter's functions


def get_params(seed):
    """The initial parameters, as NumPy arrays: the same in every process."""
    random, params = np.random.default_rng(seed), {}
    for name, shape in SHAPES.items():
        inputs = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        values = (
            random.normal(size=shape, scale=(2 / inputs) ** 0.5)
            if len(shape) > 1
            else np.zeros(shape)
        )
        params[name] = values.astype("float32")
    return params


def train_batch(step, replicas, images, labels, rate):
    """The mean loss of a minibatch, and the replicas after one step of gradient descent."""
    loss, gradients = step(replicas, *map(on_host, of_this_process(images, labels)))
    if distributed.world_size() > 1:
        loss, total = distributed.all_reduce([loss, gradients[0]])
        gradients = [xdevice.to_device(total, xdevice.device_of(params)) for params in replicas]
    replicas = replicas.map(descent(rate / len(labels)), gradients)
    return to_numpy(loss).item() / len(labels), replicas


def train_batch_step_by_step(replicas, images, labels, devices, rate):
    """The same as in the chapter: one process, and one device after the other."""
    shards = split_batch([on_host(images), on_host(labels)], devices)
    gradients = []
    for params, shard, device in zip(replicas, shards, devices, strict=True):
        with scope(device):
            gradients.append(value_and_grad(cross_entropy)(params, *shard)[1])
    return replicas.map(descent(rate / len(labels)), all_reduce(gradients))


def descent(rate):
    """A step of gradient descent."""
    return lambda params, gradients: {
        name: params[name] - rate * gradients[name] for name in params
    }


def of_this_process(*arrays):
    """The rows that this process computes; all of them in a single process."""
    return [np.array_split(array, distributed.world_size())[distributed.rank()] for array in arrays]


def on_host(array):
    """The NumPy array as a tensor of the chosen framework, still on the host."""
    return xdevice.tensor(array, device=xdevice.cpu())


# Training


def train(options, devices):
    images, labels, test_images, test_labels = load(options.seed)
    step = data_parallel(native.compiled(cross_entropy), devices, reduction="sum")
    start = get_params(options.seed)
    replicas = replicate(on_device(start, devices[0]), devices)
    size = options.batch_size - 1  # so that the parts have different lengths
    few = images[:size], labels[:size]
    show(
        f"the first step is that of one device: {compare(step, start, devices, few, options.rate)}"
    )

    history, timer = [], xdevice.Timer()
    for epoch in range(1, options.epochs + 1):
        order = np.random.default_rng([options.seed, epoch]).permutation(len(labels))
        timer.start()
        losses = []
        batches = order[: len(order) // options.batch_size * options.batch_size].reshape(
            -1, options.batch_size
        )
        for rows in progress(batches, f"epoch {epoch} of {options.epochs}"):
            loss, replicas = train_batch(step, replicas, images[rows], labels[rows], options.rate)
            losses.append(loss)
        speed = len(losses) * options.batch_size / timer.stop()
        right = accuracy(replicas[0], test_images, test_labels)
        history.append((np.mean(losses), right, speed))
        show(
            f"epoch {epoch:2}  loss {history[-1][0]:.4f}  test accuracy {right:.3f}  {speed:.0f} samples/s"
        )
    show(f"test accuracy {right:.3f}; {np.median([h[2] for h in history]):.0f} samples/s")
    return step, replicas, history


def compare(step, start, devices, batch, rate):
    """Whether a step on all devices, at once and one after the other, equals that on one device."""
    params = on_device(start, devices[0])
    (alone,) = train_batch_step_by_step(Replicas([params]), *batch, devices[:1], rate)
    together = train_batch(step, replicate(params, devices), *batch, rate)[1]
    spelt = train_batch_step_by_step(replicate(params, devices), *batch, devices, rate)
    return max(differences(alone, other) for other in [*together, *spelt]) < 1e-5


def differences(one, other):
    return max(abs(to_numpy(one[name]) - to_numpy(other[name])).max() for name in one)


def speed_up(options, step, replicas, devices):
    """The speed of all devices with a minibatch each, relative to one device with one minibatch."""
    images, labels, *_ = load(options.seed)
    one = data_parallel(native.compiled(cross_entropy), devices[:1], reduction="sum")
    timers = {1: xdevice.Timer(), len(devices): xdevice.Timer()}
    for turn in range(11):  # alternately, so that a busy machine slows both
        for k, of_k, params in ((1, one, Replicas(replicas[:1])), (len(devices), step, replicas)):
            rows = np.resize(
                np.arange(len(labels)), options.batch_size * k * distributed.world_size()
            )
            timers[k].start()
            train_batch(of_k, params, images[rows], labels[rows], options.rate)
            if turn:  # the first turn loads and compiles
                timers[k].stop()
    alone, together = (np.median(timer.times) / k for k, timer in timers.items())
    return alone / together


def on_device(params, device):
    return {name: xdevice.tensor(values, device=device) for name, values in params.items()}


def accuracy(params, images, labels):
    """The fraction of the images that the network classifies correctly."""
    device = xdevice.device_of(params)
    with scope(device):
        scores = lenet(params, xdevice.tensor(images, device=device))
    return (to_numpy(scores).argmax(axis=1) == labels[:, 0]).mean()


# Data and options


def load(seed):
    """Training and test data: 28 × 28 images with mean near 0, and a column of integer labels."""
    pixels, labels = load_digits(return_X_y=True)
    at = np.linspace(0, 7, 28)
    widen = np.maximum(0, 1 - abs(at[:, None] - np.arange(8)))  # linear interpolation
    images = widen @ (pixels.reshape(-1, 8, 8) / 8 - 1) @ widen.T
    parts = train_test_split(
        images[:, None].astype("float32"),
        labels[:, None],
        test_size=0.2,
        random_state=seed,
        stratify=labels,
    )
    return parts[0], parts[2], parts[1], parts[3]


def devices_of_this_process(k):
    """With several processes on one host, each uses its own GPUs."""
    if xdevice.machine.gpus()["gpus"]:
        first = distributed.local_rank() * k
        return gpus(first + k)[first:]
    return gpus(k)


def progress(parts, what):
    """The parts; the first process shows a progress bar on a terminal."""
    hidden = distributed.rank() != 0 or not sys.stderr.isatty()
    return track(parts, what, console=Console(stderr=True), transient=True, disable=hidden)


def show(text):
    if distributed.rank() == 0:
        print(text, flush=True)


def plot(history, path, gpus, gain):
    """Plot the loss, the accuracy and the speed, each on its own axes."""
    from matplotlib.figure import Figure

    world = distributed.world_size()
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    epochs = range(1, len(history) + 1)
    kinds = ("training loss", "test accuracy in %", "samples per second")
    factors = (1, 100, 1)
    colours = ("#0072B2", "#D55E00", "#009E73")  # distinguishable with any kind of colour vision
    for axes, kind, values, factor, colour in zip(
        figure.subplots(1, 3), kinds, zip(*history, strict=True), factors, colours, strict=True
    ):
        axes.plot(epochs, [factor * value for value in values], marker="o", color=colour)
        axes.set_ylabel(kind)
        axes.set_xlabel("epoch")
        axes.set_xticks(range(1, len(history) + 1, max(1, len(history) // 8)))
        axes.set_ylim(0, 1.08 * factor * max(values))
        axes.spines[["top", "right"]].set_visible(False)
    virtual = "virtual " if xdevice.properties(gpus[0])["virtual"] else ""
    devices = f"{f'{world} × ' if world > 1 else ''}{len(gpus)} {virtual}GPUs"
    gained = f"; {gain:.2f} times the speed of one device" if gain else ""
    figure.suptitle(f"LeNet under {xdevice.backend()} on {devices}{gained}")
    figure.savefig(path, dpi=150)


def main():
    options = parse_arguments()
    k = options.devices or (2 if distributed.world_size() == 1 else 1)
    ask_for_gpus(k)  # before the processes join, which starts some frameworks
    gain = None
    with distributed.process_group():
        devices = devices_of_this_process(k)
        there = " ".join(map(str, devices)) + (
            ", virtual" if xdevice.properties(devices[0])["virtual"] else ""
        )
        show(f"{distributed.world_size()} × {len(devices)} devices: {there}")
        step, replicas, history = train(options, devices)
        if len(devices) > 1:
            gain = speed_up(options, step, replicas, devices)
            show(f"speed-up: {gain:.2f} on {len(devices)} devices")
        if options.plot and distributed.rank() == 0:
            plot(history, options.plot, devices, gain)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Train LeNet on several GPUs.")
    parser.add_argument(
        "--devices", type=positive, help="how many in each process (2 in one process, else 1)"
    )
    parser.add_argument(
        "--epochs", type=positive, default=10, help="passes over the data (%(default)s)"
    )
    parser.add_argument(
        "--batch-size",
        type=positive,
        default=64,
        help="images of a step, on all devices (%(default)s)",
    )
    parser.add_argument("--rate", type=float, default=0.15, help="the learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (%(default)s)")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw loss, accuracy and speed: a .png, .svg or .pdf"
    )
    options = parser.parse_args()
    if options.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib; pip install matplotlib")
    return options


def positive(text):
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of 1 or more")
    return number


if __name__ == "__main__":
    try:
        main()
    except xdevice.DistributedError:
        raise  # with its traceback: another process has failed
    except xdevice.XDeviceError as error:
        raise SystemExit(f"train_multi_gpu.py: {error}") from error
