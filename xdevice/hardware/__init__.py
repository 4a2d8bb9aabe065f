"""What there is: devices, virtual GPUs, scopes, memory, time, and why a GPU is missing."""
