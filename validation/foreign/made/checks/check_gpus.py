"""Tests such as other projects have; validation/foreign/test_foreign.py says what has to come of each."""

import os
import random
import uuid

import numpy as np
import pytest
import torch

GPUS = torch.cuda.is_available()
needs_gpus = pytest.mark.skipif(not GPUS, reason="needs CUDA")


@pytest.fixture
def gpu():
    if not GPUS:
        pytest.skip("needs CUDA")
    return torch.device("cuda")


def test_of_the_cpu():
    assert torch.ones(2).sum() == 2


@needs_gpus
def test_skipped_by_a_mark():
    assert torch.ones(2, device="cuda").is_cuda


def test_skipped_by_a_fixture(gpu):
    assert torch.ones(2, device=gpu).is_cuda


def test_skipped_by_its_body():
    if not GPUS:
        pytest.skip("needs CUDA")
    assert torch.ones(2, device="cuda").is_cuda


@needs_gpus
def test_that_lacks_a_package():
    import a_package_that_nobody_has  # noqa: F401


@needs_gpus
def test_whose_library_names_the_package():
    raise ImportError(
        "this function requires 'a-package-that-nobody-has'; pip install a-package-that-nobody-has"
    )


@needs_gpus
def test_that_blames_cuda():
    raise ImportError("CUDA is not installed")


@pytest.mark.parametrize("device", ["cpu", "cuda"] if GPUS else ["cpu"])
def test_that_fails_anywhere(device):
    assert torch.ones(2, device=device).sum() == 3


@needs_gpus
def test_that_fails():
    assert torch.ones(2, device="cuda").is_cpu


@needs_gpus
def test_that_ends_its_process():
    os._exit(3)


@needs_gpus
def test_after_one_that_ends_its_process():
    assert torch.cuda.device_count() == 2


@needs_gpus
@pytest.mark.parametrize("name", [pytest.param(0, id=uuid.uuid4().hex)])
def test_whose_id_changes(name):
    assert name == 0


@needs_gpus
@pytest.mark.parametrize("number", [random.random(), np.random.rand(), torch.rand(()).item()])
def test_whose_id_is_drawn(number):
    assert 0 <= number < 1


@needs_gpus
def test_that_cuda_refuses_too():
    torch.ones(2) * torch.tensor(1.0, device="cuda")


@needs_gpus
def test_that_finds_the_folder_it_is_given():
    assert os.listdir(os.environ["FOLDER"]) == ["barrier"]


@needs_gpus
def test_that_skips_itself_on_gpus():
    pytest.skip("this GPU is too small")
