"""The libraries in examples/libraries compute the same under every framework, on each device."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import xdevice
from xdevice import device_of, tensor, to_numpy

pytestmark = pytest.mark.frameworks("torch", "numpy")
LIBRARIES = Path(__file__).parents[2] / "examples" / "libraries"


def library(name):
    sys.path.insert(0, str(LIBRARIES))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(LIBRARIES))


@pytest.fixture
def made(device):
    """A function that returns an array as a tensor on the device."""
    return lambda array: tensor(np.asarray(array, dtype="float32"), device=device)


POINTS = np.array([[0, 0], [5, 5], [0, 1], [5, 6], [1, 0], [6, 5], [1, 1], [6, 6]], "float32")


def test_a_gaussian_process_passes_through_the_values(made, device):
    process = library("gaussian_process")
    x, y = np.linspace(0, 3, 5)[:, None], np.sin(np.linspace(0, 3, 5))
    new_x = np.array([[0.0], [1.5], [9.0]])
    mean, variance = process.posterior(made(x), made(y), made(new_x), noise=1e-3)

    def kernel(a, b):
        return np.exp(-((a - b.T) ** 2) / 2)

    weights = np.linalg.inv(kernel(x, x) + 1e-3 * np.eye(5))
    cross = kernel(new_x, x)
    assert device_of(mean) == device_of(variance) == device
    assert to_numpy(mean) == pytest.approx(cross @ weights @ y, abs=1e-3)
    expected = 1 - np.diag(cross @ weights @ cross.T)
    assert to_numpy(variance) == pytest.approx(expected, abs=1e-3)


def test_k_means_finds_two_groups(made, device):
    if device == "no_x64:0":  # array-api-strict 2.6.1 computes no index there
        with pytest.raises(ValueError, match="int64"):
            library("k_means").k_means(made(POINTS), 2)
        return
    centers, labels = library("k_means").k_means(made(POINTS), 2)
    assert device_of(centers) == device_of(labels) == device
    assert to_numpy(centers).tolist() == [[0.5, 0.5], [5.5, 5.5]]
    assert to_numpy(labels).tolist() == [0, 1, 0, 1, 0, 1, 0, 1]


def test_soft_dtw_approaches_dtw(made, device):
    a, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0])
    distance = library("soft_dtw").soft_dtw(made(a), made(b), gamma=0.01)
    assert device_of(distance) == device
    assert to_numpy(distance).item() == pytest.approx(1, abs=0.02)


def test_pca_keeps_the_points_of_a_plane(made, device):
    pca = library("pca")
    points = np.concatenate([POINTS, POINTS @ [[1.0], [-2.0]]], axis=1)
    model = pca.PCA(made(points), 2)
    restored = model.inverse(model.transform(made(points)))
    assert device_of(restored) == device
    assert to_numpy(restored) == pytest.approx(points, abs=1e-3)
    expected = np.linalg.eigvalsh(np.cov(points.T))[::-1][:2]
    assert to_numpy(model.variances) == pytest.approx(expected, rel=1e-3)


def test_a_distance_has_a_gradient(made, backend):
    if not xdevice.backend().has("gradients", "value_and_gradients"):
        with pytest.raises(xdevice.NotSupportedError):
            xdevice.value_and_grad(lambda x: x)(made([1.0]))
        return
    soft_dtw = library("soft_dtw").soft_dtw
    a, b = made([1.0, 2.0, 3.0]), made([1.0, 3.0])
    _, gradient = xdevice.value_and_grad(lambda x: soft_dtw(x, b))(a)
    assert to_numpy(gradient).shape == (3,)
    assert np.isfinite(to_numpy(gradient)).all()
