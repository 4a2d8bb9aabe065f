"""A word out of a known set that is misspelt: the error names the one that was probably meant."""

import pytest

import xdevice
from xdevice import ArgumentError
from xdevice.distributed.init_options import InitOptions


@pytest.mark.parametrize(("engine", "hint"), [
    ("mpii", "did you mean 'mpi'?"),
    ("nativ", "did you mean 'native'?"),
    ("gloo", "use 'native', the framework's own, or 'mpi'"),
])  # fmt: skip
def test_an_engine_that_is_misspelt_is_named(monkeypatch, engine, hint):
    monkeypatch.setenv("XDEVICE_ENGINE", engine)
    for options in (InitOptions(engine=engine), InitOptions()):
        with pytest.raises(ArgumentError) as error:
            options.engine_name()
        assert str(error.value) == f"{engine!r} is not an engine; {hint}"


@pytest.mark.parametrize(("word", "meant"), [("gpus", "gpu"), ("cudaa", "cuda"), ("cpus", "cpu")])
def test_a_kind_that_is_misspelt_is_not_counted_as_missing(word, meant):
    for ask in (xdevice.count, xdevice.devices, xdevice.Device, xdevice.as_device):
        with pytest.raises(xdevice.DeviceSpellingError, match=f"did you mean '{meant}'"):
            ask(word)
