"""What adapters share: environment variables, compiled libraries, shared memory, and the standard in `standard`.

Imports only `errors` and `device`, and no framework.
"""
