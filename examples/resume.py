"""Training that resumes from its last checkpoint after a failure, with identical results.

    xdevice launch -n 2 --backend torch --restarts 3 examples/resume.py --checkpoint net.safetensors

Kill one of the processes while it runs: the launcher restarts both, and they resume at the step of
the checkpoint. At the end the parameters equal those of a run without a failure, bit for bit,
because everything that a step depends on is either in the file (the parameters, the optimizer's
state, the number of the step) or follows from the seed and that number (the rows of the minibatch).
The previous checkpoint is kept beside the last one, in case the last one cannot be read.

The script names no framework, and also runs as a single process. NumPy has no gradients, so under
NumPy the script prints that and ends.
"""

import argparse
import os
import time

import numpy as np

import xdevice
from xdevice import distributed, namespace, value_and_grad

RATE, MOMENTUM, ROWS = 0.1, 0.9, 64


def beginning(seed):
    """The state before the first step: the same in every process."""
    random = np.random.default_rng(seed)
    shapes = {"W1": (8, 16), "b1": (16,), "W2": (16, 1), "b2": (1,)}
    params = {
        name: random.normal(scale=0.3, size=shape).astype("float32")
        for name, shape in shapes.items()
    }
    return {
        "step": 0,
        "params": {name: xdevice.tensor(values) for name, values in params.items()},
        "momentum": {name: xdevice.zeros(shape) for name, shape in shapes.items()},
    }


def loss(params, x, y):
    """The loss, summed over the rows, so that the losses of several processes can be added."""
    xp = namespace(x)
    hidden = xp.tanh(xp.matmul(x, params["W1"]) + params["b1"])
    return xp.sum((xp.matmul(hidden, params["W2"]) + params["b2"] - y) ** 2)


def minibatch(seed, step):
    """The rows of this process in the minibatch of the step."""
    random = np.random.default_rng([seed, step])  # one for each step: no random state is saved
    x = random.normal(size=(ROWS, 8)).astype("float32")
    y = np.sin(x.sum(axis=1, keepdims=True))
    own = [np.array_split(rows, distributed.world_size())[distributed.rank()] for rows in (x, y)]
    return [xdevice.tensor(rows) for rows in own]


def stepped(state, seed):
    """The mean loss of a minibatch, and the state after a step."""
    value, gradients = value_and_grad(loss)(state["params"], *minibatch(seed, state["step"]))
    value, gradients = distributed.all_reduce([value, gradients])
    momentum = {
        name: MOMENTUM * old + gradients[name] / ROWS for name, old in state["momentum"].items()
    }
    params = {name: old - RATE * momentum[name] for name, old in state["params"].items()}
    return xdevice.to_numpy(value).item() / ROWS, {
        "step": state["step"] + 1,
        "params": params,
        "momentum": momentum,
    }


def saved(state, path):
    """Write the checkpoint; the previous one is kept as ``path.before``."""
    if distributed.rank() == 0 and os.path.exists(path):
        os.replace(path, f"{path}.before")
    xdevice.save(state, path)  # rank 0 writes, the other processes wait


def loaded(path):
    """The state of the newest readable checkpoint, chosen by rank 0; ``None`` if there is none."""
    names = [path, f"{path}.before"]
    found = readable(names) if distributed.rank() == 0 else -1
    found = int(xdevice.to_numpy(distributed.broadcast(xdevice.tensor([found])))[0])
    return xdevice.load(names[found]) if found >= 0 else None


def readable(names):
    """The index of the first readable file, or -1; unreadable files are renamed ``.unreadable``."""
    for number, name in enumerate(names):
        try:
            if os.path.exists(name):
                xdevice.load(name)
                return number
        except (xdevice.FileFormatError, OSError) as error:
            show(f"goes on without a checkpoint that cannot be read: {error}")
            os.replace(name, f"{name}.unreadable")
    return -1


def train(options):
    state = loaded(options.checkpoint) or beginning(options.seed)
    show(f"begins at step {state['step']}")
    while state["step"] < options.steps:
        value, state = stepped(state, options.seed)
        if state["step"] % options.every == 0 or state["step"] == options.steps:
            saved(state, options.checkpoint)
            show(f"step {state['step']:4}  loss {value:.4f}")
        time.sleep(options.pause)


def show(text):
    if distributed.rank() == 0:
        print(text, flush=True)


def main(arguments=None, **place):
    """Train in the job that a launcher has started.

    Without a launcher, ``place`` has rank, world_size and address.
    """
    options = parse_arguments(arguments)
    with distributed.process_group(**place):
        train(options)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description="Train, and go on after a failure.")
    parser.add_argument(
        "--checkpoint", default="net.safetensors", metavar="FILE", help="the file (%(default)s)"
    )
    parser.add_argument("--steps", type=int, default=200, help="in all (%(default)s)")
    parser.add_argument(
        "--every", type=int, default=10, help="steps from one checkpoint to the next (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (%(default)s)")
    parser.add_argument(
        "--pause",
        type=float,
        default=0.0,
        help="seconds between steps, to try failures (%(default)s)",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main()
    except xdevice.NotSupportedError as error:
        raise SystemExit(f"resume.py: {error}") from error
