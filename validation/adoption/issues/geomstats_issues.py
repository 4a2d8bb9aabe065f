"""Reported faults of geomstats on a GPU: each test states the right behaviour, and fails if the fault is there.

The programs are our own, after the descriptions of the issues.
"""

import geomstats.backend as gs
import pytest
import torch
from geomstats.geometry.hypersphere import Hypersphere
from geomstats.geometry.spd_matrices import SPDMatrices
from geomstats.geometry.special_euclidean import SpecialEuclidean
from geomstats.learning.frechet_mean import FrechetMean

import xdevice


@pytest.fixture
def device(xdevice_device):
    return xdevice.native(xdevice_device)


def matrices(device, number=4, size=3):
    x = torch.rand(number, size, size, dtype=torch.float64, device=device)
    return x @ x.transpose(1, 2) + torch.eye(size, dtype=torch.float64, device=device)


def test_issue_1082_the_mean_of_matrices_is_on_their_device(device):
    mean = FrechetMean(SPDMatrices(3))
    mean.fit(matrices(device))
    assert mean.estimate_.device == device


def test_issue_1476_distances_on_a_sphere_are_on_the_device_of_its_points(device):
    points = torch.nn.functional.normalize(
        torch.rand(2, 5, 3, dtype=torch.float64, device=device), dim=-1
    )
    assert Hypersphere(2).metric.dist(*points).device == device


def test_issue_1476_a_tangent_vector_can_be_projected(device):
    points = torch.nn.functional.normalize(
        torch.rand(5, 3, dtype=torch.float64, device=device), dim=-1
    )
    sphere = Hypersphere(2)
    vectors = sphere.to_tangent(gs.ones_like(points), points)
    assert sphere.metric.exp(vectors, points).device == device


def test_issue_1476_logarithms_of_matrices_are_on_their_device(device):
    space = SPDMatrices(3)
    x = matrices(device)
    assert space.metric.log(x, x[0]).device == device


def test_issue_2062_distances_of_rigid_motions_are_on_their_device(device):
    space = SpecialEuclidean(3, point_type="vector")
    motions = torch.rand(2, 5, 6, dtype=torch.float64, device=device)
    assert space.metric.squared_dist(*motions).device == device
