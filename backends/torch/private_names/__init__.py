"""The names inside PyTorch that the adapter replaces or relies on, and does not find in its documentation.

They are those of ``names.txt``, which alone `replace_name` takes. `check` reads the list before virtual GPUs are made,
and ``xdevice doctor`` whenever it is run: a name that has gone, or takes other parameters, is told.
"""

from functools import partial
from typing import Any

import torch

from xdevice.kit import private_names

LAST_TRIED = "2.13.0"
"""The last version of PyTorch under which all tests have passed."""

own: Any = torch
core: Any = torch._C  # pyright: ignore[reportPrivateUsage]  # it has no public counterpart
aten: Any = torch.ops.aten
storage_of: Any = torch.Tensor.untyped_storage  # identified by its ``_cdata``

ON_CPU = core.DispatchKeySet(core.DispatchKey.CPU)
"""Dispatches operations on sizes and strides to the CPU's kernels, which do not read the memory."""


def untraced(kernel: Any) -> Any:
    """The function, which Dynamo no longer follows: torch calls it while Dynamo looks at the program's frames."""
    dynamo = core._dynamo.eval_frame
    never = dynamo._FrameAction.SKIP
    if hasattr(kernel, "__code__"):
        dynamo.set_code_exec_strategy(kernel.__code__, dynamo._FrameExecStrategy(never, never))
    return kernel


_registered: list[Any] = []  # registrations last as long as these objects


def kernels_of(space: str, kind: str = "IMPL") -> Any:
    """A library for kernels of operations in that namespace; it lasts as long as the process."""
    _registered.append(own.library.Library(space, kind))
    return _registered[-1]


def overload_of(name: str) -> Any:
    """The operation of ATen's, such as ``add.Tensor``."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(aten, packet), overload or "default")


FACTORIES = """
arange as_tensor asarray empty empty_like empty_strided eye full full_like linspace logspace normal ones ones_like
rand rand_like randint randint_like randn randn_like randperm tensor zeros zeros_like
"""

_lists = private_names.listed(__file__, FACTORIES=" ".join(FACTORIES.split()))
VIRTUAL, STAND_IN, _REPLACED = (_lists[name] for name in ("VIRTUAL", "STAND_IN", "REPLACED"))
NAMES = [*_REPLACED, *_lists["OTHERS"]]

check = partial(private_names.check, NAMES, "torch", torch.__version__, LAST_TRIED)
in_place_of = partial(private_names.in_place_of, _REPLACED)
replace_name = partial(private_names.replace, _REPLACED)
