"""Reported faults of SciPy: an array that a function creates is on the default device, not on that of its argument.

The programs are our own, after the descriptions of the issues.
"""

import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch

import xdevice


@pytest.fixture
def x(xdevice_device):
    return torch.rand(5, dtype=torch.float64, device=xdevice.native(xdevice_device))


def test_issue_21736_xlogy_is_on_the_device_of_its_arguments(x):
    assert scipy.special.xlogy(x, x).device == x.device


def test_issue_22680_logsumexp_is_on_the_device_of_its_argument(x):
    assert scipy.special.logsumexp(x).device == x.device


def test_issue_25474_ranks_are_on_the_device_of_the_data(x):
    assert scipy.stats.rankdata(x).device == x.device


def test_issue_25474_a_cumulative_integral_is_on_the_device_of_the_data(x):
    assert scipy.integrate.cumulative_simpson(x).device == x.device
