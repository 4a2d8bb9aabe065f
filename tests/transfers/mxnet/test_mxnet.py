"""Copies under MXNet: programs in processes of their own."""

import subprocess
import sys

import pytest


@pytest.mark.weekly
def test_copies_are_seen_and_refused_also_on_those_that_do_not_stand_in(copies_on):
    copies_on("mxnet")


@pytest.mark.weekly
def test_there_is_nothing_to_see_without_a_gpu():
    program = """
import xdevice
mx = xdevice.backend("mxnet").framework
with xdevice.watch_transfers() as report:
    x = mx.nd.array([1.0, 2.0])
    print(x.sum().asscalar(), (x + x.copyto(mx.cpu(1)).as_in_context(mx.cpu())).asnumpy().tolist())
print(len(report))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100
    )
    assert done.stdout.splitlines() == ["3.0 [2.0, 4.0]", "0"], done.stderr


@pytest.mark.weekly
def test_advice_that_is_followed_leaves_nothing_to_mend(check_advice):
    check_advice("mxnet")


@pytest.mark.weekly
def test_the_tests_that_the_page_shows_pass(check_page):
    check_page("mxnet")
