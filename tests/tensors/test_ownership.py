"""Which framework owns a class, where one of them cannot be asked."""

import numpy as np
import pytest

import xdevice
from xdevice.framework.adapters import before_loading, find
from xdevice.framework.ownership import classes, tensor_owner


@pytest.fixture
def refused():
    """NumPy cannot be used, as long as the list has an error."""
    numpy, errors = find("numpy"), [xdevice.VirtualDeviceError("refused")]

    def refuse(owner):
        if owner == numpy and errors:
            raise errors[0]

    numpy.unload()
    before_loading.append(refuse)
    yield errors
    before_loading.remove(refuse)


def of_a_new_class(module):
    """A tensor about whose class nothing is known yet."""
    return np.ones(2).view(type("New", (np.ndarray,), {"__module__": module}))


class Holder:
    pass


def test_a_tensor_is_never_data_while_its_framework_cannot_be_used(refused):
    tensor = of_a_new_class("course")
    with pytest.raises(xdevice.VirtualDeviceError, match="refused"):
        tensor_owner(tensor)
    refused.clear()
    assert tensor_owner(tensor) == "numpy"


def test_a_class_is_asked_about_again_when_each_framework_can_be_used(refused):
    assert tensor_owner(Holder()) is None
    assert Holder not in classes
    refused.clear()
    assert tensor_owner(Holder()) is None
    assert Holder in classes


def test_an_error_of_a_framework_is_not_one_of_the_object_that_is_searched(refused):
    holder = Holder()
    holder.tensor = of_a_new_class("numpy.new")
    with pytest.raises(xdevice.VirtualDeviceError, match="refused"):
        xdevice.to_device([holder], "cpu")
