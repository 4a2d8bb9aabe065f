"""Copies between devices.

`watch_transfers` reports them, `transfer_guard` forbids them, and `prefetch`
hides them behind computing.
"""
