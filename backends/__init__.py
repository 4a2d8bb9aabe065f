"""The adapters, one folder per framework, the same capabilities in each."""
