"""``torch.use_deterministic_algorithms`` refuses what it refuses on CUDA, in torch's own words."""

import re
from pathlib import Path

from xdevice.backends.torch.virtual.compiled.plug_in import compiled

TABLE = Path(__file__).with_name("nondeterministic.txt")


def begin() -> None:
    """Tell the plug-in which operations CUDA computes in no fixed order."""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            operation, caller, decides = re.split(r" {2,}", line)
            argument, _, value = decides.partition("=")
            compiled().alert(*(word.encode() for word in (f"aten::{operation}", caller, argument, value)))
