"""What other libraries put tensors into, moved between two virtual GPUs under PyTorch."""

import warnings

import attrs
import numpy as np
import pydantic
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import xdevice
from xdevice import cpu, device_of, gpu, to_device

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of PyTorch's functions that they use
    from tensordict import TensorDict, tensorclass
    from torch_geometric.data import Data
    from transformers import BatchEncoding, DynamicCache
    from transformers.modeling_outputs import BaseModelOutput


@tensorclass
class Sample:
    x: torch.Tensor
    label: str


@attrs.frozen
class Frozen:
    x: object
    n: int = 3


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True, frozen=True)
    x: torch.Tensor


@pytest.fixture
def x():
    return torch.ones(2, 3)


def made(x):
    return {
        "tensordict": TensorDict({"x": x, "deep": {"y": x}}, batch_size=[2]),
        "tensorclass": Sample(x=x, label="one", batch_size=[]),
        "encoding": BatchEncoding({"input_ids": x}),
        "output": BaseModelOutput(last_hidden_state=x),
        "graph": Data(x=x, edge_index=torch.zeros(2, 4, dtype=torch.long)),
        "attrs": Frozen(x),
        "packed": pack_sequence([torch.ones(3, 1), torch.ones(2, 1)]),
        "result": torch.max(x, 0),
        "state": torch.nn.BatchNorm1d(2).state_dict(),
    }


@pytest.mark.parametrize("which", list(made(torch.ones(2, 3))))
def test_it_moves_whole_beside_a_tensor_and_keeps_its_type(which, x):
    holder = made(x)[which]
    assert device_of({"it": holder, "x": x}) == cpu()
    moved = to_device({"it": holder, "x": x}, gpu(1))
    assert device_of(moved) == device_of(moved["it"]) == gpu(1)
    assert type(moved["it"]) is type(holder)
    again = to_device(moved, gpu(1))
    assert again is moved
    assert device_of(x) == cpu()


@pytest.mark.parametrize("which", list(made(torch.ones(2, 3))))
def test_a_forced_copy_shares_nothing(which, x):
    holder = made(x)[which]
    copied = to_device([holder], "cpu", copy=True)[0]
    assert copied is not holder
    assert device_of(copied) == cpu()


def test_the_copy_of_a_tensorclass_has_storage_of_its_own(x):
    sample = Sample(x=x, label="one", batch_size=[])
    copied = to_device(sample, "cpu", copy=True)
    copied.x = torch.zeros(2, 3)
    assert float(sample.x.sum()) == 6.0
    copied = to_device(sample, gpu(1))
    copied.label = "two"
    assert sample.label == "one"


def test_a_state_dict_keeps_the_versions_of_its_modules(x):
    moved = to_device(made(x)["state"], gpu(1))
    assert moved._metadata[""] == {"version": 2}


def test_a_holder_that_cannot_be_rebuilt_is_an_error_with_the_path_to_the_tensor(x):
    cache = DynamicCache()
    cache.update(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2), 0)
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
    normal = torch.distributions.Normal(x, x)
    for holder, path in (
        (cache, r"layers\[0\]\.keys"),
        (optimizer, r"param_groups\[0\]\['params'\]\[0\]"),
        (normal, "loc"),
        (Model(x=x), "Model.x"),
    ):
        for ask in (device_of, lambda tree: to_device(tree, gpu(1))):
            with pytest.raises(xdevice.NotATensorError, match=rf"{path} is a tensor.*\['held'\]"):
                ask({"x": x, "held": holder})


def test_what_is_plainly_data_passes_through(x):
    tree = {
        "x": x,
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "layout": torch.strided,
        "shape": x.shape,
        "function": torch.relu,
        "names": np.array(["a"]),
        "scalar": np.float32(1),
    }
    moved = to_device(tree, gpu(1))
    assert device_of(moved) == gpu(1)
    assert all(moved[key] is tree[key] for key in tree if key != "x")
