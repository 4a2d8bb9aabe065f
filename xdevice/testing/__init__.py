"""Tests on many frameworks and devices: a pytest plugin, and the contract suite that an adapter inherits."""

from xdevice.testing.native import Native

__all__ = ["Native"]
