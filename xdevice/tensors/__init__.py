"""Tensors and trees of them: where they are, moving, making and exchanging them, their gradients and functions."""
