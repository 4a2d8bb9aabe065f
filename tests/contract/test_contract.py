"""The contract, under each framework asked for; ``tests/native`` has each framework's own functions."""

import os
from pathlib import Path
from typing import ClassVar

import pytest

import xdevice
from xdevice.testing import contract
from xdevice.testing.contract.measuring import HUGE
from xdevice.virtual.request import ENV

NATIVE = Path(__file__).parents[1] / "native"


class TestContract(contract.Suite):
    native = NATIVE

    @classmethod
    def xdevice_promised(cls, backend, promise, params):
        has_own_class = backend == TestStrictContract.backend
        return not has_own_class and super().xdevice_promised(backend, promise, params)

    # TensorFlow's allocator waits ten seconds for memory.
    @pytest.mark.frameworks("torch", "paddle", "mxnet", "jax", "numpy")
    def test_a_huge_allocation_is_out_of_memory(self, backend, in_a_fork):
        """The suite's, in a fork of a process that has imported the framework, if it may be one."""
        if "stand-in" in os.environ.get(ENV, ""):  # which a process has from its start
            super().test_a_huge_allocation_is_out_of_memory(backend)
            return
        places = [str(device) for device in xdevice.devices()]
        code = f"import sys\nsys.argv[1:] = {[backend, *places]}\n{HUGE}"
        done = in_a_fork(backend, code, **{ENV: os.environ.get(ENV, "0")})
        assert done.returncode == 0, done.stderr
        found = done.stdout.splitlines()[-len(places) :]  # a framework may print, too
        assert found == [f"{place} out of memory" for place in places]


class TestStrictContract(contract.Suite):
    """array-api-strict refuses what the standard leaves open, and some promises go beyond it."""

    backend = "array_api_strict"
    native = NATIVE
    waived: ClassVar = {
        **dict.fromkeys(
            (
                "test_a_number_beyond_all_integers_is_an_error_beside_booleans",
                "test_beside_booleans_an_integer_is_computed_with_or_refused",
            ),
            "the standard promotes no booleans with integers",
        ),
        "test_a_number_beyond_the_integers_is_a_float_where_the_result_is_one": (
            "the standard divides no integers"
        ),
        "test_native_names_work_with_a_warning": "it has no einsum, as the standard has none",
        "test_scopes_on_two_devices_nest": (
            "it has no current device, so its own factories make arrays on the CPU"
        ),
    }
