"""One program on many devices: batches in parts, replicas, reductions, and a step of training on all of them.

Imports `tensors` and what is below it; knows nothing of other processes.
"""
