"""Importing a module of xdevice's own, in a checkout too.

In an installation, the packages of `_SIBLINGS` are in the package `xdevice`. In
a checkout they are beside it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

_SIBLINGS = ("xdevice.backends", "xdevice.virtual")


def import_built_in(module: str) -> ModuleType:
    """A module of xdevice's distribution; in a checkout, it may be in the root folder."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name in _SIBLINGS and _extend_path():
            return import_module(module)
        raise


def _extend_path() -> bool:
    """Add the root of a checkout to this package's path, unless it is there; whether it was added.

    A Python that is started in a checkout imports xdevice from there. The
    folders of `_SIBLINGS` are beside this package then, and not in it.
    """
    from os.path import dirname, isfile, join

    path = sys.modules["xdevice"].__path__
    root = dirname(path[0])
    files_of_a_checkout = ("pyproject.toml", "backends/__init__.py")
    is_checkout = all(isfile(join(root, name)) for name in files_of_a_checkout)
    if root in path or not is_checkout:
        return False
    path.append(root)
    return True
