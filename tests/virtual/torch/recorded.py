"""Random numbers that real GPUs were recorded drawing: each row has its seed and its source.

    XDEVICE_VIRTUAL_GPUS=1:stand-in python recorded.py

prints what virtual GPUs draw instead, as JSON; `test_recorded.py` compares them.
"""

import json

from recorded_in_code import ROWS as ROWS_IN_CODE
from recording import Recorded

CORNERS = "[[0, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1, -1], [0, 1, 2, 0, 1, 2, 0, 1, 2, -3, -2, -1]]"
ENDS = "[0, [0, 1, 2, -3, -2, -1]]"
TO_299 = [16, 17, 31, 32, 63, 64, 127, 128, 255, 256, 299]
AUDIO = (
    "torch_random_test.cpp of an engine for audio models, which draws torch's numbers of CUDA in C++; in a "
    "repository not named"
)

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
    Recorded(
        0,
        "torch.randint(0, 1000, (4,))",
        "541 97 191 172",
        "time steps in the tests of a control network for sound, in two repositories not named",
    ),
    Recorded(
        0,
        "torch.cat([classes_and_256_tokens(torch) for _ in range(10)])",
        "541 97 191 172 553 604 103 733 907 545 202 965 295 347 802 475 856 843 973 187 369 871 718 636 "
        "986 367 638 255 994 659 778 680 914 197 57 864 691 297 607 723 102 199 936 967 276 380 12 278 "
        "740 668 940 911 601 368 996 797 804 343 371 733 686 52 459 585 970 277 511 828 732 808 927 608 "
        "493 596 938 722 394 88 783 845",
        "the classes that a sampler of images printed in ten turns, in a repository not named; that each turn samples "
        "256 tokens by multinomial follows from the numbers",
    ),
    Recorded(
        0,
        "torch.empty(3, 3).random_()[0]",
        "2615407. 4527453. 6411889.",
        "NVIDIA/Fuser: issue 1653",
    ),
    Recorded(10, "torch.randn(3)", "-0.1029 1.6810 -0.2708", "pytorch/pytorch: issue 79496"),
    Recorded(
        0,
        "torch.rand(9, 4)",
        "0.3990 0.5167 0.0249 0.9401 0.9459 0.7967 0.4150 0.8203 0.2290 0.9096 0.1183 0.0752 0.4092 0.9601 "
        "0.2093 0.1940 0.8909 0.4387 0.3570 0.5454 0.8299 0.2099 0.7684 0.4290 0.2117 0.6606 0.1654 0.4250 "
        "0.9927 0.6964 0.2472 0.7028 0.7494 0.9303 0.0494 0.0750",
        "NVIDIA/TensorRT-LLM: the tests of ReDrafter's functions, test_unpack_gen_data",
    ),
    Recorded(
        42,
        "torch.randn(2, 5)",
        "0.1940 2.1614 -0.1721 0.8491 -1.9244 0.6530 -0.6494 -0.8175 0.5280 -1.2753",
        "flashinfer-ai/flashinfer: the docstring of logits_processor's Sample",
    ),
    Recorded(
        42,
        "torch.cat([torch.randn(4) for _ in range(6)])",
        "0.1940 2.1614 -0.1721 0.8491 0.1391 -0.1082 -0.7174 0.7566 -0.5187 1.2268 0.6255 -0.9117 "
        "-0.6974 -1.8688 -0.8832 -1.6627 -1.2682 -0.0383 -0.1029 1.4400 1.4640 -0.3238 0.7740 1.5892",
        "arguments in a test case of torch._foreach_sub, found by a fuzzer, in a repository not named",
    ),
    Recorded(
        42,
        "torch.randn(1, 19)",
        "0.1940 2.1614 -0.1721 0.8491 -1.9244 0.6530 -0.6494 -0.8175 0.5280 -1.2753 -1.6621 -0.3033 "
        "-0.0926 0.1992 -1.1204 1.8577 -0.7145 0.6881 0.7968",
        "a comment in a program for robots (marginal flows), in a repository not named",
    ),
    Recorded(
        42,
        "torch.randn(10, 781)[[0, 1, 2, 7, 8, 9]][:, [0, 1, 2, -3, -2, -1]]",
        "0.1940 2.1614 -0.1721 -0.8353 -1.6443 0.1315 -0.1797 0.9744 -2.0136 0.0543 0.2508 -0.2370 "
        "1.1266 1.5895 0.1072 -0.4797 1.4313 1.7260 1.9695 0.5996 0.5583 -0.0692 2.9254 0.9274 "
        "-1.7301 1.2562 -1.2144 -0.4262 -2.0327 -1.0277 -0.2987 0.1946 1.1640 -0.2081 -1.0439 0.7082",
        "the output of a lesson on softmax in Triton, in a repository not named",
    ),
    Recorded(
        1,
        "torch.randn(2, 10)",
        "-0.2963 2.6764 -0.1408 -0.8441 0.2905 -0.2838 -1.4535 2.3737 -0.0177 -2.7884 "
        "-0.3788 0.7046 -1.3956 -0.1248 -0.9259 -1.5463 -0.4902 0.0244 -1.5992 -0.8469",
        "the true parameters in an experiment with Hamiltonian Monte Carlo, in a repository not named",
    ),
    Recorded(
        1,
        "torch.nn.functional.dropout(torch.ones(1000), 0.1), torch.randn(3)",
        "-0.6340 -0.6431 -0.6420",
        "notes on ProteinMPNN: what a dropout changes in the numbers after it, in a repository not named",
        "RTX A4500",
    ),
    Recorded(
        1234,
        "torch.randn(3)",
        "-1.6165 0.5685 -0.5102",
        "solutions to a course's exercises, in a repository not named",
    ),
    Recorded(
        0,
        "torch.rand(10, dtype=torch.bfloat16)",
        "0.3984 0.5156 0.0249 0.9414 0.9453 0.7969 0.4141 0.8203 0.2295 0.9102",
        "notes on a matrix product by Triton on a GPU of AMD, in a repository not named",
        "AMD Instinct MI355X",
    ),
    Recorded(
        2021,
        "torch.poisson(torch.full((20,), 10.0))",
        "13 13 11 8 12 6 9 15 16 6 13 12 9 15 17 8 11 16 11 10",
        "PaddlePaddle/Paddle: test/legacy_test/test_poisson_op.py, by the same function of cuRAND",
    ),
    Recorded(
        420,
        "torch.nn.functional.gumbel_softmax(torch.randn(2, 3, device='cpu').cuda(), hard=True)",
        "0 1 0 0 1 0",
        "pytorch/pytorch: issue 82071",
    ),
    Recorded(
        1234,
        "torch.randn(16)",
        "-1.61649048 0.56845516 -0.510224819 -0.911339402 -1.15551639 -0.22615087 -1.2891326 1.065382 "
        "-0.7166605 -0.533334374 0.207757875 -0.979843318 0.744693458 -0.239484429 0.27371496 0.092008315",
        AUDIO,
    ),
    Recorded(
        1234,
        "torch.randn(300)[TO_299]",
        "-0.803610802 -1.6377064 -0.300402969 -0.251393795 -0.924830973 0.799798131 -0.167921364 "
        "-0.322486848 -1.76037288 0.534284174 -0.986868858",
        AUDIO,
    ),
    Recorded(
        5678,
        "torch.randn(16, dtype=torch.bfloat16)",
        "-0.65625 -0.5625 0.384765625 -0.151367188 0.7421875 0.244140625 0.609375 0.00321960449 -0.46875 "
        "0.306640625 -0.225585938 -0.9140625 0.7734375 0.120117188 0.52734375 -0.5078125",
        AUDIO,
    ),
    Recorded(
        1234,
        "torch.randn(300, dtype=torch.bfloat16)[TO_299]",
        "-0.8046875 -1.640625 -0.30078125 -0.251953125 -0.92578125 0.80078125 -0.16796875 -0.322265625 "
        "-1.7578125 0.53515625 -0.98828125",
        AUDIO,
    ),
    Recorded(
        1234,
        "torch.rand(16)",
        "0.127207950 0.816736281 0.543999255 0.660079062 0.272055715 0.973670244 0.390334547 0.339447320 "
        "0.545121968 0.731194019 0.386437327 0.595885396 0.757832348 0.212593451 0.719796896 0.984495401",
        AUDIO,
    ),
    Recorded(
        1234,
        "torch.rand(300)[TO_299]",
        "0.551820338 0.0980522931 0.388187110 0.797672272 0.546383321 0.694423795 0.768725276 0.798199594 "
        "0.210613519 0.294832915 0.588956773",
        AUDIO,
    ),
    Recorded(
        1234,
        "[torch.empty(168565).exponential_() for _ in range(105)][104]"
        "[[167785, 168248, 156088, 162701, 160228, 168039, 163896, 167841, 161373]]",
        "0.301640809 0.333908796 0.690724790 0.975778222 3.30194235 0.803459823 0.841065466 1.16925406 "
        "0.112876698",
        AUDIO,
        "RTX 4090",  # by its multiprocessors, 128 of 1536 threads
        "rtx4090",
    ),
    Recorded(
        42,
        "torch.cat([x.flatten() for x in torch.nn.Linear(1, 1).parameters()])",
        "0.2259 0.9754",
        "mrdbourke/pytorch-deep-learning: issue 759",
    ),
    Recorded(
        0,
        "torch.randn(3, 3, 5, dtype=torch.half)",
        "-0.9248 -0.4253 -2.6445 0.1451 -0.1208 -0.5796 -0.6230 -0.3284 -1.0742 -0.3630 -1.6709 2.2656 "
        "0.3118 -0.1842 1.2871 1.1816 -0.1271 1.2168 1.4355 1.0605 -0.4941 -1.4248 -0.7246 -1.2969 "
        "0.0697 -0.0074 1.8965 0.6880 -0.0779 -0.8374 1.3506 -0.2878 -0.5967 -0.3284 -0.9087 -0.8062 "
        "-0.7407 -0.0504 0.5435 1.5146 0.0141 0.4531 1.6348 0.7124 -0.1805",
        "a script on the attributes of tensors, in a repository not named",
    ),
    Recorded(
        0,
        "torch.randn(64 * 1024 * 1024, dtype=torch.half).view(64, 1024, 1024)"
        "[[0, 0, 0, 63, 63, 63], [0, 1, 2, 1005, 1006, 1007]][:, [0, 1, 2, -3, -2, -1]]",
        "-0.9248 -0.4253 -2.6445 -1.2363 -1.1992 -0.1084 -1.0322 -0.8892 -0.1914 1.4658 -0.0562 0.0457 "
        "1.4951 -1.5723 0.3313 -0.6592 2.3184 0.4822 -0.7598 -0.2815 -1.7314 -0.5435 -0.4978 -1.1318 "
        "-0.4604 0.5435 0.4023 -0.1267 -0.4702 0.3462 0.5518 0.2021 -0.4985 -0.2632 1.6035 0.0717",
        "a script on flash-attn's padding, in a repository not named",
        "not named; only an RTX 3090's threads give the last three rows",
        (82, 1536),
    ),
    Recorded(
        0,
        "torch.cuda.set_rng_state(torch.tensor([0] * 8 + [568 % 256, 2] + [0] * 6, dtype=torch.uint8, device='cpu')), "
        "torch.randint(1004, 1024, (64, 1)).cumsum(0)[:, 0]",
        "1014 2030 3050 4073 5085 6094 7102 8109 9114 10129 11140 12159 13168 14188 15206 16211 17219 18224 "
        "19240 20249 21255 22274 23296 24301 25307 26317 27330 28340 29362 30366 31379 32399 33419 34432 35450 "
        "36456 37467 38480 39484 40505 41517 42540 43555 44569 45579 46598 47610 48618 49623 50629 51650 52663 "
        "53673 54695 55717 56732 57746 58761 59766 60774 61792 62815 63830 64838",
        "the same script; the offset at which it drew is not recorded, and no other multiple of 4 below 2000 fits",
    ),
    Recorded(
        0,
        "torch.randn(8, 8, dtype=torch.double)",
        "-0.3104 -0.0343 0.1756 -2.2804 0.5039 0.5596 -0.0750 0.9691 -0.2357 -0.4582 0.5661 1.2851 -1.8667 "
        "-0.0312 1.2433 1.3689 -1.0753 -0.0158 -1.4481 -1.3089 0.6980 -0.3300 -0.7708 -0.4946 3.1702 0.0387 "
        "-1.5728 1.2985 -0.4419 -0.6965 -1.4002 -0.0884 -0.2369 -0.5956 -0.0263 0.0546 -0.7082 0.0642 1.2830 "
        "-1.8728 0.7562 -0.6345 1.1176 1.3382 0.1994 0.0671 -0.4159 0.1468 -0.2672 -0.7882 0.5857 -1.0649 "
        "1.0950 0.2490 -0.3271 -0.8691 0.5576 -0.1883 -0.5894 -1.0192 -1.4553 -0.8599 -1.3645 -0.0069",
        "a page on the backward pass of max pooling, in a repository not named",
    ),
    *(
        Recorded(  # this version's dropout drew as rand does; later versions draw for neighbours
            0,
            "(torch.rand(1000, 1000) < 0.5).sum() * 2",
            kept,
            "pytorch/pytorch: issue 25690, a dropout of PyTorch 1.2",
            gpu,
            grid,
        )
        for gpu, kept, grid in (("P100", "999826", (56, 2048)), ("K80", "999100", (13, 2048)))
    ),
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
    *ROWS_IN_CODE,
]


def classes_and_256_tokens(torch):
    """The classes of eight images, which are then sampled token by token."""
    classes = torch.randint(0, 1000, (8,))
    for _ in range(256):
        torch.multinomial(torch.ones(8, 64), 1)
    return classes


def drawn(row: Recorded) -> list[float]:
    import torch

    from xdevice.virtual.models import MODELS
    from xdevice.virtual.torch.compiled import compiled

    if isinstance(row.grid, str):
        multiprocessors, threads = MODELS[row.grid].multiprocessors, MODELS[row.grid].threads
    else:
        multiprocessors, threads = row.grid
    compiled().model(multiprocessors, threads, 80)  # the capability decides on workspaces only
    compiled().draw_as_before_2_7(row.as_before_2_7)
    torch.manual_seed(row.seed)
    with torch.device("cuda"):
        result = eval(
            row.draw,
            {"torch": torch, "classes_and_256_tokens": classes_and_256_tokens, "TO_299": TO_299},
        )
    last = result[-1] if isinstance(result, tuple) else result
    return last.double().flatten().tolist()


if __name__ == "__main__":
    print(json.dumps([drawn(row) for row in ROWS]))
