"""Random numbers in place of data sets that programs download: of the same shapes and types, but fewer."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

SIZES = 10_512, 256
"""Examples to train and to test with; programs often keep 10 000 of the first to validate with."""


def images(count: int, seed: int) -> tuple[Any, Any]:
    """Grey images of 28 by 28 and labels from 0 to 9."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 28, 28)).astype("uint8"), random.integers(
        0, 10, count
    ).astype("uint8")


def stand_in(tab: str, examples: int | None = None) -> None:
    """Replace the data sets of the framework whose cells are run, and those of Keras."""
    global SIZES
    if examples is not None:
        SIZES = examples, max(1, examples // 4)
    if tab != "all":
        import downloads

        downloads.in_requests()
        if tab == "paddle":
            downloads.in_paddle()
        if tab == "pytorch":
            downloads.in_torchvision()
    if tab == "mxnet":
        _in_gluon()
    if tab in ("all", "tensorflow", "jax"):
        _in_keras(keras_of(tab))
    if tab in ("tensorflow", "jax"):
        _in_tensorflow_datasets()


def keras_of(tab: str) -> Any:
    """Keras, or what a program calls tf.keras, which is Keras 2 where TF_USE_LEGACY_KERAS is set."""
    if tab in ("tensorflow", "jax"):
        import tensorflow as tf

        return tf.keras
    import keras

    return keras


def _in_keras(keras: Any) -> None:
    for home in (keras.datasets.mnist, keras.datasets.fashion_mnist):
        home.load_data = lambda path="": tuple(images(count, i) for i, count in enumerate(SIZES))
        sys.modules[home.__name__] = home
    keras.datasets.cifar10.load_data = lambda: tuple(
        _coloured(count, i) for i, count in enumerate(SIZES)
    )
    sys.modules[keras.datasets.cifar10.__name__] = keras.datasets.cifar10
    keras.datasets.imdb.load_data = _imdb


def _coloured(count: int, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, 32, 32, 3)).astype("uint8"), random.integers(
        0, 10, (count, 1)
    )


def _imdb(*, num_words: int = 20_000, **_: Any) -> Any:
    """Reviews of 20 to 200 words, and whether they are kind."""
    random = np.random.default_rng(0)
    made = []
    for count in SIZES:
        reviews = [
            random.integers(1, num_words, random.integers(20, 200)).tolist() for _ in range(count)
        ]
        made.append((np.array(reviews, dtype=object), random.integers(0, 2, count)))
    return tuple(made)


class Arrays:
    """``tensorflow_datasets.as_numpy``: a data set of tensors as one of NumPy's arrays."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Any:
        return self.dataset.as_numpy_iterator()

    def __len__(self) -> int:
        return int(self.dataset.cardinality())


def _in_tensorflow_datasets() -> None:
    """``tensorflow_datasets.load`` with MNIST's images; the package need not be installed."""
    import tensorflow as tf

    def load(
        name: str,
        split: Any = None,
        batch_size: int | None = None,
        with_info: bool = False,
        **how: Any,
    ) -> Any:
        made = {}
        for i, word in enumerate(("train", "test")):
            pixels, labels = images(SIZES[i], i)
            both = (pixels[..., None], labels.astype("int64"))
            examples = (
                both
                if how.get("as_supervised")
                else dict(zip(("image", "label"), both, strict=True))
            )
            made[word] = tf.data.Dataset.from_tensor_slices(examples)
            if batch_size is not None:
                made[word] = made[word].batch(batch_size)
        splits = {
            word: SimpleNamespace(num_examples=count)
            for word, count in zip(made, SIZES, strict=True)
        }
        found: Any = made
        if split is not None:
            asked = [split] if isinstance(split, str) else split
            found = [made[word.partition("[")[0]] for word in asked]
            found = found[0] if isinstance(split, str) else found
        return (found, SimpleNamespace(splits=splits)) if with_info else found

    module: Any = ModuleType("tensorflow_datasets")
    module.load, module.as_numpy, module.disable_progress_bar = load, Arrays, lambda: None
    sys.modules["tensorflow_datasets"] = module


def _in_gluon() -> None:
    import xdevice

    xdevice.backend("mxnet").framework  # noqa: B018  (imports MXNet under any NumPy)
    import mxnet as mx
    from mxnet.gluon import data

    def fashion(root: str = "", train: bool = True, transform: Any = None) -> Any:
        pixels, labels = images(SIZES[not train], int(train))
        arrays = mx.np if mx.util.is_np_array() else mx.nd  # as programs have chosen by then
        made = data.ArrayDataset(
            arrays.array(pixels[..., None], dtype="uint8"), labels.astype("int32")
        )
        return made if transform is None else made.transform(transform)

    data.vision.FashionMNIST = data.vision.MNIST = fashion
