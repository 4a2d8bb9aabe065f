"""The tests of the tools in this folder: ``pytest validation``. They need PyTorch and a C++ compiler."""

import pytest

from xdevice.virtual import plugins


def pytest_configure(config):
    config.addinivalue_line("markers", "weekly: takes long; here all tests run, weekly")


@pytest.fixture(scope="session")
def compiler():
    """The command of the C++ compiler that plug-ins are compiled with."""
    return plugins.compiler() or pytest.skip(f"needs a C++ compiler: {plugins.INSTALL}")
