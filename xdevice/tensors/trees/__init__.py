"""Trees: nested containers with tensors as leaves. What is opened, how it is rebuilt, and what a leaf is."""
