import torch

if torch.cuda.is_available():
    raise RuntimeError("cannot be imported where there are GPUs")


def test_that_is_there_without_gpus():
    assert torch.ones(2).sum() == 2
