"""Promises that collect garbage do so without walking the framework's modules each time."""

import gc

import pytest


@pytest.fixture(scope="session", autouse=True)
def _frozen_modules():
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
