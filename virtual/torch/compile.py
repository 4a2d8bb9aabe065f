"""``torch.compile`` on virtual GPUs: by aot_eager, since inductor has no code for them."""

from typing import Any

import torch

from xdevice.virtual.torch.private_names import in_place_of, names
from xdevice.virtual.torch.runtime import in_use


def replace() -> None:
    """Run graphs with tensors on virtual GPUs by aot_eager, and leave all others to inductor."""

    @in_place_of("torch:_TorchCompileInductorWrapper.__call__")
    def call(compile: Any, self: Any, model: Any, inputs: Any, **kwargs: Any) -> Any:
        made = [
            node.meta.get("example_value") for node in model.graph.nodes
        ]  # a graph may go to a GPU by itself
        held = [*inputs, *model.parameters(), *model.buffers(), *made]
        if any(isinstance(x, torch.Tensor) and x.device.type == in_use().name for x in held):
            return names.value("torch._dynamo.backends.debugging:aot_eager")(model, inputs)
        return compile(self, model, inputs, **kwargs)
