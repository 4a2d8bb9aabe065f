"""A reported fault of POT (612, mended by 847): it uses a GPU although its arguments are on the CPU.

The program is our own, after the description. The number of bytes is the one that the pull request
reports for an RTX 4060.
"""

import ot
import torch


def test_issue_612_tensors_on_the_cpu_use_no_memory_of_a_gpu():
    x = torch.randn(20, 2)
    ot.dist(x, x)
    assert torch.cuda.memory_allocated() == 0
