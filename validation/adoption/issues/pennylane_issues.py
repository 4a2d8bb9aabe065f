"""Reported faults of PennyLane on a GPU: each test states the right behaviour, and fails if the fault is there.

7955, mended by 8008: what is computed on the second GPU came back on the first.
1688: a layer whose inputs and weights are on a GPU mixes devices.
The programs are our own, after the descriptions.
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


def test_issue_1688_a_layer_computes_on_the_device_of_its_weights(device):
    @qml.qnode(qml.device("default.qubit", wires=2))
    def circuit(inputs, weights):
        qml.templates.AngleEmbedding(inputs, wires=range(2))
        qml.templates.StronglyEntanglingLayers(weights, wires=range(2))
        return qml.expval(qml.PauliZ(0)), qml.expval(qml.PauliZ(1))

    layers = torch.nn.Sequential(
        torch.nn.Linear(2, 2), qml.qnn.TorchLayer(circuit, {"weights": (3, 2, 3)})
    )
    layers.to(device)
    assert layers(torch.rand(5, 2, device=device)).device == device
