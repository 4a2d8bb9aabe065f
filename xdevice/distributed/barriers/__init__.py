"""The barrier before each collective: within a host by pipes, between hosts by a tree, otherwise by rank 0."""
