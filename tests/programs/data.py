"""Random numbers in place of data sets that programs download: of the same shapes and types, but fewer."""

from __future__ import annotations

import io
import sys
import zipfile
from types import SimpleNamespace
from typing import Any

import numpy as np

SIZES = 10_512, 256
"""Examples to train and to test with; programs often keep 10 000 of the first to validate with."""


def images(count: int, seed: int) -> tuple[Any, Any]:
    """Grey images of 28 by 28 and labels from 0 to 9."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 28, 28)).astype("uint8"), random.integers(0, 10, count).astype("uint8")


def stand_in(tab: str, examples: int | None = None) -> None:
    """Replace the data sets of the framework whose cells are run, and those of Keras."""
    global SIZES
    if examples is not None:
        SIZES = examples, max(1, examples // 4)
    if tab == "mxnet":
        _in_gluon()
    if tab in ("all", "tensorflow"):
        _in_keras()
    if tab == "paddle":
        _in_paddle()
    if tab in ("mxnet", "paddle"):
        _in_downloads()


def _in_keras() -> None:
    import keras

    for home in (keras.datasets.mnist, keras.datasets.fashion_mnist):
        home.load_data = lambda path="": tuple(images(count, i) for i, count in enumerate(SIZES))
        sys.modules[home.__name__] = home


def _in_gluon() -> None:
    import xdevice

    xdevice.backend("mxnet").framework  # noqa: B018  (imports MXNet under any NumPy)
    from mxnet import np as arrays
    from mxnet.gluon import data

    def fashion(root: str = "", train: bool = True, transform: Any = None) -> Any:
        pixels, labels = images(SIZES[not train], int(train))
        made = data.ArrayDataset(arrays.array(pixels[..., None], dtype="uint8"), labels.astype("int32"))
        return made if transform is None else made.transform(transform)

    data.vision.FashionMNIST = data.vision.MNIST = fashion


def _in_paddle() -> None:
    import paddle

    class Fashion(paddle.io.Dataset):
        def __init__(self, image_path: Any = None, label_path: Any = None, mode: str = "train", transform: Any = None):
            self.pixels, self.labels = images(SIZES[mode != "train"], int(mode == "train"))
            self.transform = transform or (lambda image: image.astype("float32"))

        def __len__(self) -> int:
            return len(self.labels)

        def __getitem__(self, i: int) -> tuple[Any, Any]:
            return self.transform(self.pixels[i, ..., None]), self.labels[i : i + 1].astype("int64")

    paddle.vision.datasets.FashionMNIST = paddle.vision.datasets.MNIST = Fashion


def _in_downloads() -> None:
    """Texts of random words, for chapters that download a book, or pairs of sentences in a zip file."""
    import requests

    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdefgh"), random.integers(1, 6))) for _ in range(40)]

    def sentence() -> str:
        return " ".join(random.choice(words, 5))

    def get(url: str, **options: Any) -> Any:
        text = "\n".join(sentence() for _ in range(SIZES[1]))
        if not url.endswith(".zip"):
            return SimpleNamespace(content=text.encode())
        name = url.rpartition("/")[2].removesuffix(".zip")
        pairs = "".join(f"{line} .\t{sentence()} .\n" for line in text.splitlines())
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as folder:
            folder.writestr(f"{name}/{name[:3]}.txt", pairs)
        return SimpleNamespace(content=file.getvalue())

    requests.get = get
