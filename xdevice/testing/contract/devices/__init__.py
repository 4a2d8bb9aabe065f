"""Promises about devices: which there are, scopes, time, memory, several GPUs, mixing them."""
