"""Trees of tensors in files: ``save`` and ``load``, in the safetensors format."""
