"""One program on many devices: batches in parts, replicas, reductions, and a step of training on all of them."""
