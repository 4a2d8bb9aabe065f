"""Which framework: the adapters, which one is chosen, and which one owns an object.

Imports only what adapters stand on: `errors`, `device`, `contract`, `machine` and `kit`.
"""
