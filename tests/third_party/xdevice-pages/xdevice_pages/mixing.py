"""pages refuses to mix by itself; strictly, in xdevice's words."""

from contextlib import contextmanager

import pages

from xdevice.errors import mixed
from xdevice_pages.hardware import as_device


@contextmanager
def forbid():
    def refuse(operation, found):
        raise mixed(operation, map(as_device, found))

    before, pages.refuse = pages.refuse, refuse
    try:
        yield
    finally:
        pages.refuse = before
