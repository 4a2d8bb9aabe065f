"""Virtual GPUs are pages that have been opened."""

import pages

from xdevice import VirtualDeviceError


def enable(n, force, stand_in):
    if len(pages.PAGES) > 1:
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for pages, which has {pages.PAGES}; ask first"
        )
    pages.open_pages(n)
