import words

from xdevice.testing import contract


class TestTinygrad(contract.Suite):
    backend = "tinygrad"
    native = words
