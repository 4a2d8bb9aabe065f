"""``torch.compile`` and ``torch.export``: inductor has no code for virtual GPUs, so their graphs run by aot_eager."""

from typing import Any

import torch

from xdevice.backends.torch.private_names import in_place_of
from xdevice.backends.torch.virtual.runtime import in_use


def replace() -> None:
    """Run graphs with tensors on virtual GPUs by aot_eager, and leave all others to inductor."""

    @in_place_of("torch:_TorchCompileInductorWrapper.__call__")
    def call(own: Any, self: Any, model: Any, inputs: Any, **kwargs: Any) -> Any:
        made = [node.meta.get("example_value") for node in model.graph.nodes]  # a graph may go to a GPU by itself
        held = [*inputs, *model.parameters(), *model.buffers(), *made]
        if any(isinstance(x, torch.Tensor) and x.device.type == in_use().name for x in held):
            from torch._dynamo.backends.debugging import aot_eager

            return aot_eager(model, inputs)
        return own(self, model, inputs, **kwargs)
