"""The adapters, one folder per framework, the same rooms in each."""
