"""Virtual GPUs that stand in for CUDA's, under torch's own CUDA device type.

No name is translated, so ``cuda:1``, ``.cuda()``, ``is_cuda``, autocast, lazy modules, ``.data =``, checkpoints and
pickles are torch's own. What ``torch.cuda`` asks of a build with CUDA is answered here.
"""

from xdevice.virtual.torch import streams
from xdevice.virtual.torch.cuda import (
    api,
    checks,
    dtypes,
    extensions,
    faithful,
    tensor_types,
)

_PARTS = (
    api.replace,
    api.replace_unavailable,
    streams.replace_on_cuda,
    api.replace_whole,
    extensions.refuse,
    tensor_types.replace,
)
STEPS = checks.register, dtypes.begin, *_PARTS, dtypes.register_products
"""What makes up for CUDA, in this order: its kernels' dtypes, then the parts of ``torch.cuda`` that need it."""

FAITHFUL_STEPS = faithful.keep_copies_back, faithful.refuse_nondeterministic
