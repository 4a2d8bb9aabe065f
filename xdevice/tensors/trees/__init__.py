"""Trees: nested containers with tensors as leaves, how they are opened and rebuilt."""
