"""The frameworks' own ways to train on several devices, and in several processes, for `scaling.py`.

Each file here is one framework's, and knows nothing of xdevice. It offers

- ``loss(params, images, labels)``: the lesson's network and mean loss in the framework's own words;
- ``alone(task)``: to train it on one device of one process;
- ``processes(task)``: the same in every process, the gradients averaged over all of them;
- ``devices(task)``: one process, its rows shared out over two devices, where the framework has a way to do that on
  a CPU; else ``NO_DEVICES`` says why not;
- ``compiled(function)``: what whoever trains with ``data_parallel`` compiles first; mostly nothing;
- ``VIRTUAL``: whether the two devices are virtual GPUs; else they are the CPU twice;
- ``THREADS``: whether gradients may be computed in two threads.

The last three return a `Training`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Task(NamedTuple):
    """What all begin with, as NumPy arrays: the lesson's parameters by name, and one batch of this process's own."""

    params: dict[str, Any]
    images: Any
    labels: Any
    rate: float


class Training(NamedTuple):
    """A training that goes on: one step more, the end of all that was queued, and where it has come to."""

    step: Callable[[], None]
    wait: Callable[[], None]
    parameters: Callable[[], dict[str, Any]]
    """As NumPy arrays, by the lesson's names."""


def nothing() -> None:
    """What there is to wait for where calls come back when they are done."""
