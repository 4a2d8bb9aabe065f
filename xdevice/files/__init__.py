"""Trees of tensors in safetensors files: ``save`` and ``load``."""
