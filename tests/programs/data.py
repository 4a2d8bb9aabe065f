"""Random numbers in place of data sets that programs download: of the same shapes and types, but fewer."""

from __future__ import annotations

import sys
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
    if tab in ("mxnet", "paddle"):
        import downloads

        downloads.in_requests()
        if tab == "paddle":
            downloads.in_paddle()
    if tab == "mxnet":
        _in_gluon()
    if tab in ("all", "tensorflow"):
        _in_keras()


def _in_keras() -> None:
    import keras

    for home in (keras.datasets.mnist, keras.datasets.fashion_mnist):
        home.load_data = lambda path="": tuple(images(count, i) for i, count in enumerate(SIZES))
        sys.modules[home.__name__] = home


def _in_gluon() -> None:
    import xdevice

    xdevice.backend("mxnet").framework  # noqa: B018  (imports MXNet under any NumPy)
    import mxnet as mx
    from mxnet.gluon import data

    def fashion(root: str = "", train: bool = True, transform: Any = None) -> Any:
        pixels, labels = images(SIZES[not train], int(train))
        arrays = mx.np if mx.util.is_np_array() else mx.nd  # as programs have chosen by then
        made = data.ArrayDataset(arrays.array(pixels[..., None], dtype="uint8"), labels.astype("int32"))
        return made if transform is None else made.transform(transform)

    data.vision.FashionMNIST = data.vision.MNIST = fashion
