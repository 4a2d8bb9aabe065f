"""``torch.compile`` on virtual GPUs uses the backend aot_eager: inductor does not support them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from xdevice.virtual.torch.private_names import Function, in_place_of, names
from xdevice.virtual.torch.runtime import in_use


class Use(NamedTuple):
    """What a program has compiled for virtual GPUs."""

    anything: bool = False
    with_graphs: bool = False  # of CUDA, which keep memory of their own


use = Use()


def replace() -> None:
    """Compile graphs with tensors on virtual GPUs by aot_eager, and all others by inductor."""

    @in_place_of("torch:_TorchCompileInductorWrapper.__call__")
    def call(
        native: Function, self: object, model: Any, inputs: Sequence[object], **kwargs: object
    ) -> Any:
        # a graph may create tensors on a GPU that none of its inputs is on
        intermediate = [node.meta.get("example_value") for node in model.graph.nodes]
        values = [*inputs, *model.parameters(), *model.buffers(), *intermediate]
        if any(map(_is_virtual, values)):
            global use
            settings = getattr(self, "config", {})
            use = Use(True, use.with_graphs or bool(settings.get("triton.cudagraphs")))
            return names.value("torch._dynamo.backends.debugging:aot_eager")(model, inputs)
        return native(self, model, inputs, **kwargs)


def _is_virtual(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == in_use().name
