"""What ``torch.cuda`` has and virtual GPUs do not: each raises an error that says what to use instead."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from xdevice.backends.torch.private_names import replace_name
from xdevice.kit.private_names import resolved

_TABLE = Path(__file__).with_name("unavailable.txt")


def refused(name: str, instead: str) -> Callable[..., NoReturn]:

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"virtual GPUs have no {name}; {instead}")

    return refuse


def _class(name: str, instead: str) -> type:
    """A class that cannot be instantiated."""
    refuse = refused(name, instead)
    return type(name.rpartition(".")[2], (), {"__new__": lambda cls, *args, **kwargs: refuse()})


def replace() -> None:
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            names, called, instead = re.split(" {2,}", line)
            paths = names.split()
            is_class = isinstance(getattr(*resolved(paths[0]), None), type)
            value = (_class if is_class else refused)(called, instead)
            for path in paths:
                replace_name(path, value)
    for name in torch.cuda.tunable.__all__:  # TunableOp is off, and cannot be turned on
        refuse = refused(f"torch.cuda.tunable.{name}", "operations are the CPU's and are not tuned")
        off = name in ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled")
        replace_name(f"torch.cuda.tunable:{name}", (lambda: False) if off else refuse)
