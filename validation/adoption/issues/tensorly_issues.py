"""A reported fault of TensorLy on a GPU: a rank that is larger than a dimension mixes devices.

The programs are our own, after the descriptions of the issues.
"""

import pytest
import tensorly
import torch
from tensorly.decomposition import parafac, partial_tucker

import xdevice

tensorly.set_backend("pytorch")


@pytest.fixture
def device(xdevice_device):
    return xdevice.native(xdevice_device)


def test_issue_503_a_tucker_decomposition_is_on_the_device_of_its_tensor(device):
    (core, factors), _ = partial_tucker(torch.rand(12, 7, device=device), rank=[4, 9], modes=[0, 1])
    assert {core.device, *(factor.device for factor in factors)} == {device}


def test_issue_507_a_parafac_decomposition_is_on_the_device_of_its_tensor(device):
    found = parafac(torch.rand(10, 10, 3, device=device), rank=4)
    assert {factor.device for factor in found.factors} == {device}
