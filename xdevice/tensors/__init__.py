"""Tensors and trees: placement, moving, creation, exchange, gradients, and the array API."""
