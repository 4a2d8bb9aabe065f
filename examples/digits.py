"""Training on real handwritten digits.

The parameters are moved to the device once, the minibatches one by one.

    XDEVICE_BACKEND=torch python examples/digits.py     under PyTorch
    python examples/digits.py --epochs 5 --device cpu   shorter, and on the CPU
    xdevice run --backend all examples/digits.py        all frameworks, side by side

The digits are 1797 images of 8 × 8 pixels that come with scikit-learn. The script names no
framework: the network and its optimizer are the framework's own, in ``native/``, and xdevice moves
them. NumPy has no gradients, so under NumPy the script prints that and ends.
"""

import argparse

import _needed  # noqa: F401  (says what is not installed)
import native
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import xdevice


def main():
    options = parse_arguments()
    device = options.device or xdevice.try_gpu()
    xdevice.seed(options.seed)
    train, test = load(options.seed)

    # The model first, then its optimizer: some frameworks replace the parameters in a move.
    net = xdevice.to_device(native.classifier(inputs=64, hidden=128, classes=10), device)
    step = native.trainer(net, rate=0.3)
    print(
        f"{xdevice.backend()} on {xdevice.device_of(net)}: {len(train[0])} images to learn, {len(test[0])} to test"
    )

    timer = xdevice.Timer()
    for epoch in range(1, options.epochs + 1):
        timer.start()
        loss = run_epoch(step, train, device, np.random.default_rng([options.seed, epoch]))
        seconds = timer.stop()
        right = accuracy(net, test, device)
        print(
            f"epoch {epoch:2}  loss {loss:.4f}  test accuracy {right:.3f}  {seconds:.2f} s",
            flush=True,
        )
    print(f"test accuracy {right:.3f} after {timer.sum():.1f} s of training")


def load(seed):
    """Training and test data, each as images and labels, on the host."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32")
    parts = train_test_split(images, labels, test_size=0.2, random_state=seed, stratify=labels)
    train_images, test_images, train_labels, test_labels = parts
    return (train_images, train_labels), (test_images, test_labels)


def run_epoch(step, data, device, random, batch_size=32):
    """The mean loss of one pass over the data in random order."""
    losses = []
    for rows in np.array_split(random.permutation(len(data[0])), len(data[0]) // batch_size):
        x, labels = xdevice.to_device([on_host(part[rows]) for part in data], device)
        losses.append(step(x, labels))
    # Read once, at the end: reading the loss after every step makes the host wait each time.
    return xdevice.to_numpy(native.stack(losses)).mean()


def accuracy(net, data, device):
    """The fraction of the images that the network classifies correctly."""
    images, labels = data
    scores = net(xdevice.to_device(on_host(images), device))
    return (xdevice.to_numpy(scores).argmax(axis=1) == labels).mean()


def on_host(array):
    """The NumPy array as a tensor of the chosen framework, still on the host."""
    return xdevice.tensor(array, device=xdevice.cpu())


def parse_arguments():
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument(
        "--epochs", type=positive, default=20, help="passes over the data (%(default)s)"
    )
    parser.add_argument("--device", help="where to train (the first GPU, else the CPU)")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (%(default)s)")
    return parser.parse_args()


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


if __name__ == "__main__":
    try:
        main()
    except xdevice.XDeviceError as error:
        raise SystemExit(f"digits.py: {error}") from error
