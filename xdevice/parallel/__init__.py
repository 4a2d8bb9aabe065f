"""One program on many devices: split batches, replicas, reductions, and data-parallel training."""
