"""The private names that a framework's adapter and its virtual GPUs list."""

import multiprocessing
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple


class Listed(NamedTuple):
    """A module ``private_names``."""

    names: Any  # its PrivateNames
    last_tried: Any
    added: tuple[str, ...]  # attributes that the framework adds by itself


def lists_of(framework: str) -> list[Listed]:
    """What is listed by the adapter, and by its virtual GPUs if they have a list of their own.

    Other processes read the lists: the import of virtual GPUs imports the adapter, which would hold names before a
    test removes them.
    """
    homes = f"xdevice.backends.{framework}", f"xdevice.virtual.{framework}"
    pool = multiprocessing.get_context("fork").Pool(1)
    try:
        return [each for each in pool.map(_listed, homes) if each is not None]
    finally:
        pool.close()  # not terminate, which PaddlePaddle reports as a fatal signal
        pool.join()


def _listed(home: str) -> Listed | None:
    if find_spec(f"{home}.private_names") is None:
        return None
    module = import_module(f"{home}.private_names")
    return Listed(module.names, module.LAST_TRIED, getattr(module, "ADDED", ()))
