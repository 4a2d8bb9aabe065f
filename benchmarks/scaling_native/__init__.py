"""The frameworks' own data-parallel training, for `scaling.py`.

Each file has the code of one framework, on several devices and in several
processes. It trains without xdevice, and contains

- ``loss(params, images, labels)``: the lesson's network and mean loss, in the
  framework's own functions;
- ``alone(task)``: the training on one device of one process;
- ``processes(task)``: the training in every process, with the gradients
  averaged over all of them;
- ``devices(task)``: the training in one process, whose rows are split over two
  devices; ``NO_DEVICES`` is the reason if the framework cannot do that on a
  CPU;
- ``compiled(function)``: the function as a user of ``data_parallel`` would
  compile it; most frameworks return it as it is;
- ``VIRTUAL``: whether the two devices are virtual GPUs; otherwise they are the
  CPU twice;
- ``THREADS``: whether two threads may compute gradients at the same time.

``alone``, ``processes`` and ``devices`` return a `Training`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Task(NamedTuple):
    """What every contender starts with, as NumPy arrays.

    The parameters are the lesson's, by name. The images and labels are the
    batch of this process.
    """

    params: dict[str, Any]
    images: Any
    labels: Any
    rate: float


class Training(NamedTuple):
    """A training in progress."""

    step: Callable[[], None]
    """Takes one more step; the framework may only queue it."""
    wait: Callable[[], None]
    """Returns when all queued steps have ended."""
    parameters: Callable[[], dict[str, Any]]
    """Returns the parameters as NumPy arrays, by the lesson's names."""


def no_wait() -> None:
    """The ``wait`` of frameworks whose steps have ended when they return."""
