"""pages tells of each copy to another page."""

from contextlib import contextmanager

import pages

from xdevice.contract import Copy
from xdevice_pages.hardware import as_device


@contextmanager
def watch(watcher):
    def copied(operation, array, page):
        kind = "copy" if operation == "to" else "number"
        watcher.see(Copy(kind, operation, array.numbers.nbytes, as_device(array.page), as_device(page)))

    before, pages.copied = pages.copied, copied
    try:
        yield
    finally:
        pages.copied = before


def unseen():
    return ["what a program does with an array's numbers itself"]
