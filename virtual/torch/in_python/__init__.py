"""Virtual GPUs in Python, by torch's interface for devices: ``vgpu`` without a compiled plug-in."""
