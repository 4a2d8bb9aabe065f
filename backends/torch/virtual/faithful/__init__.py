"""What real GPUs refuse, or do later: virtual GPUs that stand in do the same, unless they are lenient."""

from xdevice.backends.torch.virtual.faithful import deterministic, late

STEPS = late.begin, deterministic.begin
"""What is done when virtual GPUs start, in this order."""
