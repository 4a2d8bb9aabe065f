"""Training steps of PyTorch's own layers, for `virtual.py`: LeNet and a small transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


class Transformer(nn.Module):
    """Two layers of width 128 with four heads, over a vocabulary of 1000 words."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.embed = nn.Embedding(1000, 128)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.embed(words))
        scores: torch.Tensor = self.head(hidden.mean(1))
        return scores


def lenet() -> nn.Module:
    first_block = [nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)]
    second_block = [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    dense = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*first_block, *second_block, *dense)


def steps(device: torch.device) -> dict[str, Callable[[], None]]:
    """One step of each network on the device, by SGD with momentum."""
    torch.manual_seed(0)
    images = torch.randn(64, 1, 28, 28)
    words = torch.randint(0, 1000, (16, 32))
    return {
        "LeNet, batch of 64": _step(lenet(), images, device),
        "transformer, 16 × 32 words": _step(Transformer(), words, device),
    }


def _step(model: nn.Module, batch: torch.Tensor, device: torch.device) -> Callable[[], None]:
    """A step that trains the model on the batch; its targets are the digits in order."""
    targets = torch.arange(len(batch)) % 10
    model = model.to(device)
    batch = batch.to(device)
    targets = targets.to(device)
    optimiser = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(batch), targets).backward()
        optimiser.step()

    return step
