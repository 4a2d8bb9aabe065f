"""The private names of PyTorch that virtual GPUs replace or read, and functions for its operations.

`replace_name` and ``names.value`` take only the names that ``names.txt`` lists.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import torch

from xdevice.backends.kit.private_names import PrivateNames

Function: TypeAlias = Callable[..., Any]

LAST_TRIED = {"2.15.0": "3.11 3.12 3.13 3.14", "2.13.0": "3.10"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

untyped_torch: Any = torch
"""torch, whose private names are unknown to type checkers."""

core: Any = torch._C  # it has no public counterpart
aten: Any = torch.ops.aten
storage_of: Any = torch.Tensor.untyped_storage  # identified by its ``_cdata``


def untraced(kernel: Function) -> Function:
    """Return the function after telling Dynamo not to trace it.

    torch calls it while Dynamo traces the program.
    """
    if hasattr(kernel, "__code__") and _has_names_of_dynamo():
        dynamo = core._dynamo.eval_frame
        never = dynamo._FrameAction.SKIP
        dynamo.set_code_exec_strategy(kernel.__code__, dynamo._FrameExecStrategy(never, never))
    return kernel


@cache
def _has_names_of_dynamo() -> bool:
    return names.has("torch.compile")


_registered: list[Any] = []  # registrations last as long as these objects


def kernels_of(space: str, kind: str = "IMPL") -> Any:
    """A library for kernels of the operations in that namespace. It is never unregistered."""
    _registered.append(untyped_torch.library.Library(space, kind))
    return _registered[-1]


def overload_of(name: str) -> Any:
    """The overload of an ATen operation by its name, such as ``add.Tensor``."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(aten, packet), overload or "default")


FACTORIES = """
arange as_tensor asarray empty empty_like empty_strided eye full full_like linspace logspace normal ones ones_like
rand rand_like randint randint_like randn randn_like randperm tensor zeros zeros_like
"""

names = PrivateNames(__file__, "torch", "torch", LAST_TRIED, FACTORIES=" ".join(FACTORIES.split()))
VIRTUAL, STAND_IN, NAMES = names.of("VIRTUAL"), names.of("STAND_IN"), names.of()
in_place_of, replace_name = names.in_place_of, names.replace
