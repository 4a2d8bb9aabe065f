"""The launcher: starts a job's processes, shows their output, and stops them."""
