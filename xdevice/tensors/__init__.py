"""Tensors and trees of them: where they are, moving, making and exchanging them, their gradients and functions.

Imports `hardware`, `framework` and what adapters stand on.
"""
