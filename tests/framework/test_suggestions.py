"""A word out of a known set that is misspelt: the error names the one that was probably meant."""

import pytest

import xdevice


@pytest.mark.parametrize(("word", "meant"), [("gpus", "gpu"), ("cudaa", "cuda"), ("cpus", "cpu")])
def test_a_kind_that_is_misspelt_is_not_counted_as_missing(word, meant):
    for ask in (xdevice.count, xdevice.devices, xdevice.Device, xdevice.as_device):
        with pytest.raises(xdevice.DeviceSpellingError, match=f"did you mean '{meant}'"):
            ask(word)
