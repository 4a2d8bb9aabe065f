"""What there is: devices, virtual GPUs, scopes, memory, time, and why a GPU is missing.

Imports `framework` and what adapters stand on. (Not named ``devices``: `xdevice.devices` is a function.)
"""
