"""A block of environment variables."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager


@contextmanager
def environment(settings: Mapping[str, str]) -> Generator[None, None, None]:
    """Set these environment variables, and restore their old values.

    Some frameworks read such a variable only once, when they start.
    """
    old_values = {name: os.environ[name] for name in settings if name in os.environ}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings.keys() - old_values.keys():
            os.environ.pop(name, None)
        os.environ.update(old_values)
