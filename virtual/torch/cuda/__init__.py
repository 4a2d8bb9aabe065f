"""Virtual GPUs that stand in for CUDA's, under torch's own CUDA device type.

No name is translated, so ``cuda:1``, ``.cuda()``, ``is_cuda``, autocast, lazy modules, ``.data =``,
checkpoints and pickles are torch's own. The functions that ``torch.cuda`` calls in a build with
CUDA are replaced here.
"""

from xdevice.virtual.torch import streams
from xdevice.virtual.torch.cuda import (
    api,
    async_copies,
    checks,
    contexts,
    dtypes,
    extensions,
    nondeterministic,
    tensor_types,
)

STEPS = (
    checks.register,
    dtypes.begin,
    api.replace,
    api.replace_unavailable,
    streams.replace_on_cuda,
    api.replace_users,
    extensions.refuse,
    tensor_types.replace,
    dtypes.register_products,
)
"""The steps that stand in for CUDA, in this order: dtypes of its kernels, then ``torch.cuda``."""

FAITHFUL_STEPS = (async_copies.delay, contexts.find, nondeterministic.refuse)
"""What real GPUs delay or refuse; not done if the virtual GPUs are lenient."""
