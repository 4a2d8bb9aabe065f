"""Environment variables that a framework reads once, set while it does."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager


@contextmanager
def environment(settings: Mapping[str, str]) -> Generator[None, None, None]:
    """Set these variables, and put back what was there."""
    before = {name: os.environ[name] for name in settings if name in os.environ}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings.keys() - before.keys():
            os.environ.pop(name, None)
        os.environ.update(before)
