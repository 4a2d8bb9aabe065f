"""Virtual GPUs that stand in for CUDA's, under torch's own CUDA device type.

No name is translated, so ``cuda:1``, ``.cuda()``, ``is_cuda``, autocast, lazy modules, ``.data =``, checkpoints and
pickles are torch's own. What ``torch.cuda`` asks of a build with CUDA is answered here.
"""

from xdevice.backends.torch.virtual.cuda import api, dtypes, libraries, products, streams, tensor_types, unavailable

_PARTS = api.replace, unavailable.replace, streams.replace, libraries.replace, tensor_types.replace
STEPS = dtypes.begin, *_PARTS, products.register
"""What makes up for CUDA, in this order: its kernels' dtypes, then the parts of ``torch.cuda`` that need it."""
