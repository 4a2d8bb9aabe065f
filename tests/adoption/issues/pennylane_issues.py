"""A reported fault of PennyLane (7955, mended by 8008): what is computed on the second GPU came back on the first.

The programs are our own, after the description.
"""

import numpy as np
import pennylane as qml
import pytest
import torch

import xdevice


@pytest.fixture
def device(xdevice_device):
    return xdevice.native(xdevice_device)


def test_a_state_is_on_the_device_of_its_parameters(device):
    @qml.qnode(qml.device("default.qubit", wires=2), interface="torch")
    def state(angles):
        qml.CRX(angles[0], wires=[0, 1])
        return qml.state()

    assert state(torch.rand(1, dtype=torch.float64, device=device)).device == device


def test_tensors_of_a_gpu_and_numpy_arrays_are_put_together_on_the_gpu(device):
    x = torch.tensor([1.0, 2.0], device=device)
    y = np.array([3.0])
    assert qml.math.concatenate([x, y]).device == device
