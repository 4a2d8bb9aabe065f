"""Random images for the data sets of PaddlePaddle and torchvision, and random text for what d2l's chapters download."""

from __future__ import annotations

import io
import zipfile
from types import SimpleNamespace
from typing import Any

import data
import numpy as np


def in_paddle() -> None:
    """Grey images for MNIST and Fashion-MNIST, and coloured ones for CIFAR-10."""
    import paddle

    class Fashion(paddle.io.Dataset):
        def __init__(
            self,
            image_path: Any = None,
            label_path: Any = None,
            mode: str = "train",
            transform: Any = None,
        ):
            self.pixels, self.labels = data.images(
                data.SIZES[mode != "train"], int(mode == "train")
            )
            self.transform = transform or (lambda image: image.astype("float32"))

        def __len__(self) -> int:
            return len(self.labels)

        def __getitem__(self, i: int) -> tuple[Any, Any]:
            return self.transform(self.pixels[i, ..., None]), self.labels[i : i + 1].astype("int64")

    class Coloured(Fashion):
        def __init__(self, data_file: Any = None, mode: str = "train", transform: Any = None):
            super().__init__(mode=mode, transform=transform)
            self.pixels = (
                np.random.default_rng(2).integers(0, 256, (len(self), 32, 32, 3)).astype("uint8")
            )

        def __getitem__(self, i: int) -> tuple[Any, Any]:
            return self.transform(self.pixels[i]), np.int64(self.labels[i])

    paddle.vision.datasets.Cifar10 = Coloured
    paddle.vision.datasets.FashionMNIST = paddle.vision.datasets.MNIST = Fashion


def in_torchvision() -> None:
    """Grey images for Fashion-MNIST, which are PIL's before the program's transform."""
    import torchvision
    from PIL import Image
    from torch.utils.data import Dataset

    class Fashion(Dataset):
        def __init__(
            self, root: str, train: bool = True, transform: Any = None, download: bool = False
        ) -> None:
            self.pixels, self.labels = data.images(data.SIZES[not train], int(train))
            self.transform = transform or (lambda image: image)

        def __len__(self) -> int:
            return len(self.labels)

        def __getitem__(self, i: int) -> tuple[Any, int]:
            return self.transform(Image.fromarray(self.pixels[i])), int(self.labels[i])

    torchvision.datasets.FashionMNIST = torchvision.datasets.MNIST = Fashion


def in_requests() -> None:
    """Texts of random words, for chapters that download a book, or pairs of sentences in a zip file."""
    import requests

    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdefgh"), random.integers(1, 6))) for _ in range(40)]

    def sentence() -> str:
        return " ".join(random.choice(words, 5))

    def get(url: str, **options: Any) -> Any:
        text = "\n".join(sentence() for _ in range(data.SIZES[1]))
        if not url.endswith(".zip"):
            return SimpleNamespace(content=text.encode())
        name = url.rpartition("/")[2].removesuffix(".zip")
        pairs = "".join(f"{line} .\t{sentence()} .\n" for line in text.splitlines())
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as folder:
            folder.writestr(f"{name}/{name[:3]}.txt", pairs)
        return SimpleNamespace(content=file.getvalue())

    requests.get = get
