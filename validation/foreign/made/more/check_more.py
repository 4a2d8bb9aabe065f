import torch


def test_of_another_folder():
    assert torch.cuda.is_available()
