"""pages tells of each copy to another page."""

from contextlib import contextmanager

import pages

from xdevice import Device
from xdevice.contract import Copy
from xdevice_pages.hardware import as_device


@contextmanager
def watch(watcher):
    def copied(operation, array, page):
        source, target = (
            as_device(array.page),
            Device("cpu", 0) if page is None else as_device(page),
        )
        if source != target:
            kind = "copy" if operation in ("to", "to_numpy") else "number"
            watcher.see(Copy(kind, operation, array.numbers.nbytes, source, target))

    before, pages.copied = pages.copied, copied
    try:
        yield
    finally:
        pages.copied = before


def unseen():
    return ["what a program does with an array's numbers itself"]
