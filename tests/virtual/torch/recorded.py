"""Random numbers that real GPUs were recorded drawing: each row has its seed and its source.

    XDEVICE_VIRTUAL_GPUS=1:stand-in python recorded.py

prints what virtual GPUs draw instead, as JSON; `test_recorded.py` compares them.
"""

import json
from typing import NamedTuple


class Recorded(NamedTuple):
    seed: int
    draw: str  # an expression; its last tensor is what was printed
    values: str  # as they were printed
    source: str  # the repository, and the file or the issue
    gpu: str = "unknown"
    # the GPU's multiprocessors, and the threads of each, where the tensor has more elements than the GPU has threads;
    # or the name of its model
    grid: tuple[int, int] | str = "a100"


CORNERS = "[[0, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1, -1], [0, 1, 2, 0, 1, 2, 0, 1, 2, -3, -2, -1]]"
ENDS = "[0, [0, 1, 2, -3, -2, -1]]"

ROWS = [
    Recorded(
        0,
        "torch.rand(3, 3), torch.rand(3, 3)",
        "0.9722 0.7910 0.4690 0.3300 0.3345 0.3783 0.7640 0.6405 0.1103",
        "sbrunk/storch: BasicExample.scala",
    ),
    Recorded(
        0,
        "torch.rand(33)",
        "0.3990 0.5167 0.0249 0.9401 0.9459 0.7967 0.4150 0.8203 0.2290 0.9096 0.1183 0.0752 0.4092 0.9601 "
        "0.2093 0.1940 0.8909 0.4387 0.3570 0.5454 0.8299 0.2099 0.7684 0.4290 0.2117 0.6606 0.1654 0.4250 "
        "0.9927 0.6964 0.2472 0.7028 0.7494",
        "open-mmlab/mmdetection3d: the tests of PartA2's heads",
    ),
    Recorded(
        0,
        "torch.distributions.Uniform(torch.tensor(0.0), torch.tensor(1.0)).rsample((5,))",
        "0.3990 0.5167 0.0249 0.9401 0.9459",
        "pytorch/pytorch: issue 47347",
    ),
    Recorded(
        42,
        "torch.rand(3, 4)",
        "0.6130 0.0101 0.3984 0.0403 0.1563 0.4825 0.7362 0.4060 0.5189 0.2867 0.2416 0.9228",
        "a course's page, in a repository that the index of public code does not name",
    ),
    Recorded(
        0,
        "torch.randn(8, 8)",
        "-0.9247 -0.4253 -2.6438 0.1452 -0.1209 -0.5797 -0.6229 -0.3284 -1.0745 -0.3631 -1.6711 2.2655 "
        "0.3117 -0.1842 1.2866 1.1820 -0.1271 1.2169 1.4353 1.0605 -0.4941 -1.4244 -0.7244 -1.2973 "
        "0.0697 -0.0074 1.8969 0.6878 -0.0779 -0.8373 1.3506 -0.2879 -0.5965 -0.3283 -0.9086 -0.8059 "
        "-0.7407 -0.0504 0.5435 1.5150 0.0141 0.4532 1.6349 0.7124 -0.1806 1.0252 -1.4622 -0.7554 "
        "-0.1836 0.3824 0.3918 -0.0830 0.8971 -1.1123 0.1116 0.4863 -0.5499 -0.3231 -0.5469 0.9049 "
        "0.2837 0.1210 0.4730 -1.0823",
        "kapilsh/kapilsh.github.io: the page about fused kernels",
    ),
    Recorded(
        0,
        "torch.randint(5, 9, (2,)), torch.randint(0, 10, (2, 16))[:, :6]",
        "4 0 3 4 0 0 1 0 3 5 0 7",
        "smolix/d2l-neu: outputs/pytorch/chapter_attention/what-attention-computes.json",
        "RTX 4090",
        "rtx4090",
    ),
    Recorded(
        0,
        "torch.randint(0, 100, (8,))",
        "41 97 91 72 53 4 3 33",
        "a comment in a diffusion model's training step, in a repository that the index of public code does not name",
    ),
    Recorded(10, "torch.randn(3)", "-0.1029 1.6810 -0.2708", "pytorch/pytorch: issue 79496"),
    Recorded(
        42,
        "torch.randn(1, 64, 2048)[0][[0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 2, -3, -2, -1] * 2]",
        "0.1940 2.1614 -0.1721 1.4540 -2.7733 -0.8932 -0.4574 0.8063 0.1580 -1.0001 -1.1552 -0.6955",
        "pytorch/pytorch: issue 158398",
    ),
    Recorded(
        43,
        "torch.empty(1, 3, 128, 128).normal_()[..., 0, 0]",
        "1.9983 0.8704 2.1127",
        "pytorch/pytorch: issue 62467",
        "RTX A6000",
    ),
    Recorded(
        14,
        f"torch.empty(1000, 100).normal_(5, 5**0.5)[{CORNERS}]",
        "2.8731 5.2727 2.9889 3.9968 3.8097 5.7328 2.7337 2.2106 7.7815 8.2207 6.5395 4.2604",
        "pytorch/pytorch: issue 97097",
        "RTX A4000",
        (48, 1536),
    ),
    Recorded(
        0,
        f"torch.rand(10000, 10000)[{CORNERS}]",
        "0.3990 0.5167 0.0249 0.1117 0.5124 0.6413 0.2846 0.1924 0.9891 0.1611 0.7280 0.1510",
        "a script on tensors on GPUs, in a repository that the index of public code does not name",
        "not named; only a T4's threads give the last row",
        "t4",
    ),
    *(
        Recorded(
            1,
            f"torch.randn(1, 49 * 12 * 112 * 144)[{ENDS}]",
            f"-0.2963 2.6764 -0.1408 {end}",
            "pytorch/pytorch: issue 143086",
            gpu,
            gpu.lower(),
        )
        for gpu, end in (
            ("H100", "-0.6970 -0.7780 0.3267"),
            ("A100", "0.1549 -0.6797 -0.1656"),
        )
    ),
    Recorded(
        1,
        f"(torch.nn.Dropout(0.1)(torch.ones(512 * 4 * 1024)) == 0).nonzero().flatten()[{ENDS[4:-1]}]",
        "8 14 20 2097121 2097140 2097151",
        "intel/torch-xpu-ops: issue 2926",
        "RTX 4080 SUPER",
        (80, 1536),
    ),
]


def drawn(row: Recorded) -> list[float]:
    import torch

    from xdevice.virtual.models import MODELS
    from xdevice.virtual.torch.compiled import compiled

    if isinstance(row.grid, str):
        multiprocessors, threads = MODELS[row.grid].multiprocessors, MODELS[row.grid].threads
    else:
        multiprocessors, threads = row.grid
    compiled().model(multiprocessors, threads, 80)  # the capability decides on workspaces only
    torch.manual_seed(row.seed)
    with torch.device("cuda"):
        result = eval(row.draw, {"torch": torch})
    last = result[-1] if isinstance(result, tuple) else result
    return last.double().flatten().tolist()


if __name__ == "__main__":
    print(json.dumps([drawn(row) for row in ROWS]))
