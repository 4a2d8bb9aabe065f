"""Programs: the command line, and what it runs."""
