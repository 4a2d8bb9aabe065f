"""The contract, under each framework asked for; ``tests/native`` has each framework's own functions."""

from pathlib import Path

import pytest

from xdevice.testing import contract

# TensorFlow's allocator waits ten seconds for memory.
weekly_under_tensorflow = pytest.mark.weekly(under="tensorflow")
weekly_under_tensorflow(contract.Memory.test_a_huge_allocation_is_out_of_memory)

# JAX compiles each step for each number of devices.
weekly_under_jax = pytest.mark.weekly(under="jax")
weekly_under_jax(contract.DataParallel.test_a_sum_over_rows_is_added_up)
weekly_under_jax(contract.DataParallel.test_step_gradients_are_with_parameters)
weekly_but_for_two = pytest.mark.weekly(under="jax", but="two")
weekly_but_for_two(contract.DataParallel.test_many_devices_equal_one)
weekly_but_for_two(contract.DataParallel.test_replicas_have_equal_gradients)
weekly_but_for_two(contract.DataParallel.test_a_step_keeps_none_among_parameters)


class TestContract(contract.Suite):
    native = Path(__file__).parents[1] / "native"
