"""Which framework: the adapters, which one is chosen, and which one owns an object."""
