"""Virtual GPUs written in Python, by torch's official way for devices: ``vgpu`` where no plug-in can be had."""
