"""What real GPUs refuse, or do later: virtual GPUs that stand in do the same, unless they are lenient."""

from xdevice.backends.torch.virtual.faithful import late

STEPS = (late.begin,)
"""What is done when virtual GPUs start, in this order."""
