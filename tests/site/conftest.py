"""The built site, in the folder that XDEVICE_SITE names: ``tox run -e docs`` builds it and runs test_pages.py."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def site():
    return Path(os.environ["XDEVICE_SITE"]).resolve(strict=True)
