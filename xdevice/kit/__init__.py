"""What adapters share: the standard's functions made of plain ones, promotion, environment variables.

Imports only `errors` and `device`, and no framework.
"""
