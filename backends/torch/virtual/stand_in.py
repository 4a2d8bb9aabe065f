"""Virtual GPUs that stand in for CUDA's, under torch's own CUDA device type.

No name is translated, so ``cuda:1``, ``.cuda()``, ``is_cuda``, autocast, lazy modules, ``.data =``, checkpoints and
pickles are torch's own. What ``torch.cuda`` asks of a build with CUDA is answered here.
"""

from __future__ import annotations

from xdevice.backends.torch.virtual import (
    stand_in_absent,
    stand_in_streams,
    stand_in_tools,
    stand_in_types,
    stand_in_words,
)


def start() -> None:
    """Replace the parts of ``torch.cuda`` that need CUDA."""
    stand_in_words.replace()
    stand_in_absent.replace()
    stand_in_streams.replace()
    stand_in_tools.replace()
    stand_in_types.replace()
