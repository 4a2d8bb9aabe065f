"""What adapters share: environment variables, compiled libraries, shared memory, and the standard in `standard`."""
