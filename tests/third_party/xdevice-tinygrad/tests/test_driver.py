"""Without a driver tinygrad's WEBGPU computes garbage, and reports no error: the driver must be in the process."""

import os
import re
from pathlib import Path

import pytest

import xdevice


@pytest.mark.skipif(os.environ.get("DEV") != "WEBGPU", reason="DEV=WEBGPU is not set")
def test_the_driver_is_mapped_and_the_numbers_are_right():
    with xdevice.using("tinygrad"):
        x = xdevice.ones((2, 3), device="gpu:1")
        assert xdevice.to_numpy(x @ x.T + 1).tolist() == [[4, 4], [4, 4]]
        assert xdevice.device_of(x) == xdevice.as_device(x.device) == x.device == "WEBGPU:1"
    assert re.search(
        r"/libvulkan_\w+\.so|/libGLX_nvidia\.so",
        Path("/proc/self/maps").read_text(encoding="utf-8"),
    )
