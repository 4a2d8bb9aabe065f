"""Virtual GPUs are pages that have been opened."""

import pages

from xdevice import VirtualDeviceError


def enable(request):
    if len(pages.PAGES) > 1:
        raise VirtualDeviceError(
            f"{request.number} virtual GPUs are too late for pages, which has {pages.PAGES}; ask first"
        )
    pages.open_pages(request.number)
