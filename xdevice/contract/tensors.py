"""Tensors: where they are, and models that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, TypeAlias

from xdevice.contract.native import Model, Node, Tensor
from xdevice.device import Device

__all__ = [
    "Category",
    "Models",
    "NodeParts",
    "Placement",
]

Category = Literal["tensor", "model", "device", "data"]
"""What a class is to its framework.

A ``tensor`` or parameter, a ``model`` or another object with tensors, a native
``device``, or ``data``, which has no tensors: a dtype, a shape, a layout.
"""

Children: TypeAlias = list[Any]
"""The parts of a node: tensors, other nodes and plain data."""

NodeParts: TypeAlias = tuple[
    Children, Callable[[Node], list[str]], Callable[[Node, Children], Node], list[Any]
]
"""A node's children, ``paths(node)``, ``rebuild(node, new_children)``, and its static parts.

A path is what is written after the node for the child: ``.x``, ``[0]``; it is
asked for errors. A rebuilt node keeps the static parts as they are.
"""


class Placement(Protocol):
    """Where tensors are, and moving them."""

    def category(self, cls: type) -> Category | None:
        """What this class is to the framework.

        ``None`` if it is not the framework's.
        """

    def device_of(self, tensor: Tensor) -> Device:
        """The device of the tensor.

        Raises `MixedDeviceError` for a tensor on several devices,
        `UnknownPlacementError` if the device cannot be known, and
        `TracedTensorError`, one of these, if a compiler traces the tensor:
        `xdevice.device_of` then returns a device that is not known yet.

        Some frameworks have arrays without a place, or in memory that the CPU
        and the GPU share. Such a framework has one device, of the kind that
        computes by default, with ``count`` 1. Every array is on it, and nothing
        is moved.
        """

    def move(self, tensor: Tensor, device: Device, non_blocking: bool) -> Tensor:
        """The tensor on another device. Gradients flow through.

        Blocks unless ``non_blocking``.
        """

    def copy(self, tensor: Tensor) -> Tensor:
        """The tensor in memory of its own, on the same device.

        Gradients flow through.
        """

    def move_many(self, tensors: list[Tensor], device: Device, non_blocking: bool) -> list[Tensor]:
        """The tensors on another device, in order, as `move` moves each.

        For a framework that moves several sooner together. After an error,
        xdevice moves back the tensors that it changed in place, if they were on
        one device.
        """

    def is_data(self, tensor: Tensor) -> bool:
        """Whether the tensor is plain data: a scalar, text, objects.

        For a framework whose tensors may contain something other than numbers.
        """


class Models(Protocol):
    """Objects of the framework with parts: models, and containers that are registered with it."""

    def is_node(self, cls: type) -> bool:
        """Whether the class is registered as a container: a pytree.

        Python's own containers do not count.
        """

    def flatten_one_level(self, node: Node) -> NodeParts:
        """The container's children, with what is needed to name them and to rebuild it."""

    def tensors_of(self, model: Model) -> Iterable[tuple[str, Tensor]]:
        """Each parameter and buffer, with its dotted name.

        Raises `UnknownPlacementError` if the model is not built.
        """

    def move_model(self, model: Model, device: Device) -> Model:
        """Move the model, in place if the framework moves it in place.

        A copy may be there already.
        """

    def keep(self, model: Model) -> Callable[[], None]:
        """A function that restores the model's tensors as they are now.

        It restores their values and their devices.
        """

    def copy_models(self, models: list[Model]) -> list[Model]:
        """Copies of the models on the same devices.

        Parameters that models share stay shared.
        """
