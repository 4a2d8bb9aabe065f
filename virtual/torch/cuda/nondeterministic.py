"""Refuse the operations that ``torch.use_deterministic_algorithms`` refuses on CUDA."""

import re
from pathlib import Path

from xdevice.virtual.torch.compiled import compiled


def refuse() -> None:
    """Tell the plug-in which operations are nondeterministic on CUDA; it raises torch's errors."""
    table = Path(__file__).with_name("nondeterministic.txt").read_text(encoding="utf-8")
    for line in table.splitlines():
        if line.startswith("#"):
            continue
        operation, name_in_error, condition = re.split(r" {2,}", line)
        argument, _, value = condition.partition("=")
        words = (f"aten::{operation}", name_in_error, argument, value)
        compiled().add_alert(*(word.encode() for word in words))
