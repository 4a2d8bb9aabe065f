"""Trees of tensors in files: ``save`` and ``load``, in the safetensors format.

Imports `distributed`, where rank 0 writes for all, and `tensors`.
"""
