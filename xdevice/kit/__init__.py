"""What adapters share: the array API standard's functions over plain operations, promotion, environment variables.

Imports only `errors` and `device`, and no framework.
"""
