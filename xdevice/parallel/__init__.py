"""One program on many devices: batches, replicas, data parallelism."""
