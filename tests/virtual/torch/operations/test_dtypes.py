"""What PyTorch's virtual GPUs that stand in refuse as CUDA does, and what they compute though the CPU lacks it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CUFFT = (
    "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, "
    "but got a signal size of[3]"
)
NOWHERE = (
    "aten::_flash_attention_forward has no kernel for the CPU, on which virtual GPUs compute; "
    "use torch.nn.functional.scaled_dot_product_attention"
)

REFUSED = """
    import torch
    from torch.nn import functional as F

    def words(call):
        try:
            call()
            print("computed")
        except RuntimeError as error:
            print(type(error).__name__, str(error).partition(" with arguments")[0])

    x = torch.ones(4, 4, dtype=torch.int64, device="cuda")
    image, half = x.float()[None, None], x.half()
    words(lambda: x @ x)
    words(lambda: x.cpu() @ x.cpu())
    words(lambda: torch.mm(x, x, out=x.clone()))
    words(lambda: x.clone().addmm_(x, x))
    words(lambda: F.linear(x.int(), x.int()))
    words(lambda: torch.einsum("ij,kj->ik", x.byte(), x.byte()))
    words(lambda: x[0].dot(x[0]))
    words(lambda: F.max_pool2d(x[None].short(), 2))
    words(lambda: F.conv2d(x[None, None], x[None, None]))
    words(lambda: F.interpolate(image.byte(), size=2, mode="bilinear"))
    words(lambda: torch.histogram(x.float(), 3))
    words(lambda: torch.histc(half))
    words(lambda: torch.igamma(half, half))
    words(lambda: half.angle())
    words(lambda: torch.zeros(4, dtype=torch.bool, device="cuda").scatter_reduce(0, x[0], x[0] > 0, "amax"))
    words(lambda: torch.fft.fft(half[:3, :3]))
    print("what neither has")
    words(lambda: (x > 0) @ (x > 0))
    print("what CUDA may have")
    words(lambda: torch.addmm(x, x.to_sparse(), x))
    words(lambda: x.add_(1).div(3))
    words(lambda: torch.igamma(half, x.float()))
    words(lambda: x.angle())
    words(lambda: torch.mm(x[:0], x))
    words(lambda: torch.zeros(4, device="cuda").scatter_reduce(0, x[0] * 0, x[0].float(), "amax"))
    words(lambda: torch.zeros(4, dtype=torch.bool, device="cuda").scatter_reduce(0, x[0] * 0, x[0] > 0, "sum"))
    words(lambda: F.max_pool2d(image.requires_grad_(), 2, return_indices=True)[0].sum().backward())
    words(lambda: torch._int_mm(*[torch.ones(32, 32, dtype=torch.int8, device="cuda")] * 2))
"""


def test_a_dtype_that_cuda_lacks_is_refused_in_its_words(program):
    no = "NotImplementedError"
    said, neither, has = re.split("\nwhat .* ha(?:s|ve)\n", "\n".join(program(REFUSED)))
    assert said.splitlines() == [
        f"{no} \"addmm_cuda\" not implemented for 'Long'",
        "computed",
        f"{no} \"addmm_cuda\" not implemented for 'Long'",
        f"{no} \"addmm_cuda\" not implemented for 'Long'",
        f"{no} \"addmm_cuda\" not implemented for 'Int'",
        f"{no} \"baddbmm_cuda\" not implemented for 'Byte'",
        f"{no} \"dot\" not implemented for 'Long'",
        f"{no} \"max_pool2d_with_indices_out_cuda_frame\" not implemented for 'Short'",
        "RuntimeError getCudnnDataTypeFromScalarType() not supported for Long",
        f"{no} \"upsample_bilinear2d_out_frame\" not implemented for 'Byte'",
        f"{no} Could not run 'aten::histogram.bin_ct'",
        "RuntimeError HalfTensor is not supported",
        f"{no} \"igamma_cuda\" not implemented for 'Half'",
        f"{no} \"angle_cuda\" not implemented for 'Half'",
        f"{no} \"cuda_scatter_gather_base_kernel_func\" not implemented for 'Bool'",
        f"RuntimeError {CUFFT}",
    ]
    assert neither == f"{no} \"addmm_cuda\" not implemented for 'Bool'"
    assert set(has.splitlines()) == {"computed"}


@pytest.mark.weekly
def test_lenient_virtual_gpus_compute_what_the_cpu_can(program):
    said, _, _ = re.split(
        "\nwhat .* ha(?:s|ve)\n", "\n".join(program(REFUSED, words=["--lenient"]))
    )
    assert set(said.splitlines()) == {"computed"}


WIDER = """
    import torch
    from torch.nn import functional as F

    def same(found, expected):
        close = torch.allclose(found.cpu().to(expected.dtype), expected, atol=4e-3, rtol=4e-3)
        print(str(found.dtype)[6:], found.device, close)

    torch.manual_seed(0)
    x = torch.randn(4, 8)
    half, wide = x.half().cuda(), x.half().float()
    same(torch.fft.rfft(half), torch.fft.rfft(wide))
    same(torch.fft.irfft(torch.fft.rfft(half)), wide)
    volume = torch.randn(1, 2, 4, 4, 4, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.float16):
        pooled = F.avg_pool3d(F.conv3d(volume, torch.ones(2, 2, 1, 1, 1, device="cuda")), 2)
    pooled.sum().backward()
    print(pooled.dtype, volume.grad.dtype, volume.grad.unique())
    half.requires_grad_(), wide.requires_grad_()
    target = torch.tensor([0, 3, 1, 7])
    for device, t in (("cuda", half), ("cpu", wide)):
        F.multi_margin_loss(t, target.to(device)).backward()
    same(half.grad, wide.grad)
    half, wide = half.detach(), wide.detach()
    same(F.interpolate(half[None, None], size=(2, 4), mode="bilinear", antialias=True),
         F.interpolate(wide[None, None], size=(2, 4), mode="bilinear", antialias=True))
    number = torch.complex(wide, wide)
    small = number.to(torch.complex32).cuda()
    same(small.sin(), number.sin())
    same(small.clone().cos_(), number.cos())
    same(torch.tanh(small, out=torch.empty(0, dtype=torch.complex32, device="cuda")), number.tanh())
    same(small / small.real, number / number.real)
    same(small.sum(0, dtype=torch.complex64), number.sum(0))
    print(torch.histc(torch.tensor([1, 2, 2, 3], device="cuda"), 3), torch.ones(3, 3, dtype=bool).cuda().trace())
    print(torch.ones(2, dtype=bool).cuda().abs_(), torch.nansum(torch.tensor([1j, torch.nan], device="cuda")))
    print(torch.linalg.svd(torch.eye(2, device="cuda"), driver="gesvdj").S)
    try:
        torch.ops.aten._flash_attention_forward(*[small.real[None]] * 3, None, None, 4, 4, 0.0, False, False)
    except NotImplementedError as error:
        print(error)
"""


@pytest.mark.parametrize("words", [[], pytest.param(["--lenient"], marks=pytest.mark.weekly)])
def test_a_dtype_that_the_cpu_lacks_is_computed_wider_and_rounded(program, words):
    assert program(WIDER, words=words) == [
        "complex32 cuda:0 True",
        "float16 cuda:0 True",
        "torch.float16 torch.float32 tensor([0.2500], device='cuda:0')",
        "float16 cuda:0 True",
        "float16 cuda:0 True",
        *["complex32 cuda:0 True"] * 4,
        "complex64 cuda:0 True",
        "tensor([1, 2, 1], device='cuda:0') tensor(3, device='cuda:0')",
        "tensor([True, True], device='cuda:0') tensor(0.+1.j, device='cuda:0')",
        "tensor([1., 1.], device='cuda:0')",
        NOWHERE,
    ]


@pytest.mark.weekly
@pytest.mark.parametrize("every", [1])
def test_of_pytorchs_own_database_all_that_cuda_has_runs_and_no_more(every, plug_in):
    script = Path(__file__).with_name("dtypes.py")
    env = {name: value for name, value in os.environ.items() if name != "XDEVICE_VIRTUAL_GPUS"}
    done = subprocess.run(
        [sys.executable, str(script), "--every", str(every)],
        capture_output=True,
        text=True,
        timeout=3000,
        env=env,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
