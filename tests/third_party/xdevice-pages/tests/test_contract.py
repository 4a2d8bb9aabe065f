import words

from xdevice.testing import contract


class TestPages(contract.Suite):
    backend = "pages"
    native = words
