"""Nested tensors on PyTorch's virtual GPUs, strided and jagged, with the CPU's numbers."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (everybody's name for it)
from torch import nn

import xdevice
from xdevice import cpu, device_of, gpu, to_device, virtual_gpus

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
SECOND = "vgpu:1"


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("torch"):
        virtual_gpus(2)
        yield


def on_both(call):
    """The call's tensors on the CPU and on a virtual GPU, from equal random numbers."""
    found = []
    for device in ("cpu", SECOND):
        torch.manual_seed(0)
        made = call(device)
        assert all(tensor.device == torch.device(device) for tensor in made)
        found.append([tensor.detach().cpu() for tensor in made])
    return zip(*found, strict=True)


def nested(device, layout, features=16):
    parts = [torch.randn(3, features), torch.randn(5, features)]
    return torch.nested.nested_tensor(parts, layout=layout, device=device, requires_grad=True)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize(
    "through", [nn.Linear(16, 4), nn.GELU(), nn.LayerNorm(16), nn.Softmax(-1)], ids=str
)
def test_layers_take_them_forward_and_backward(through, layout):
    def call(device):
        x, layer = nested(device, layout), through.to(device)
        layer.zero_grad()
        y = torch.nested.to_padded_tensor(layer(x), 0.0)
        (y * y).sum().backward()
        return (
            y,
            torch.nested.to_padded_tensor(x.grad, 0.0),
            *(each.grad.clone() for each in layer.parameters()),
        )

    for a, b in on_both(call):
        assert torch.equal(a, b)


def heads(x):
    return x.unflatten(-1, [2, 8]).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
def test_jagged_attention_also_where_each_word_sees_those_before_it(causal):
    """PyTorch has the causal one for GPUs alone, so the CPU computes it sequence by sequence."""

    def call(device):
        x = nested(device, torch.jagged)
        if causal and device == "cpu":
            parts = [heads(part.unsqueeze(0)) for part in x.unbind()]
            made = [
                F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2)[0]
                for q in parts
            ]
            values = torch.cat(made)
        else:
            values = (
                F.scaled_dot_product_attention(*[heads(x)] * 3, is_causal=causal)
                .transpose(1, 2)
                .values()
            )
        values.square().sum().backward()
        return values, x.grad.values()

    for a, b in on_both(call):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_they_move_and_come_apart(layout):
    x = nested("cpu", layout)
    there = to_device(x, gpu(1))
    assert device_of(there) is gpu(1)
    assert to_device(there, gpu(1)) is there
    assert {device_of(part) for part in there.unbind()} == {gpu(1)}
    for a, b in zip(x.unbind(), to_device(there, cpu()).unbind(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(
        (there * 2).relu().to("vgpu:0").cpu().unbind()[1], (x * 2).relu().unbind()[1]
    )


def test_they_are_written_in_place_and_other_devices_refused():
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], device=SECOND)
    assert x.mul_(2) is x
    assert x.add_(1).unbind()[1].tolist() == [[3, 3, 3]]
    with pytest.raises(RuntimeError, match="at least two devices"):
        x * torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)])


@pytest.mark.weekly
def test_without_a_compiler_no_error_ends_the_process():
    """autograd asks for a nested tensor's sizes where C++ may not raise."""
    options = "-q", "-p", "no:cacheprovider", "-k", "LayerNorm or come_apart or in_place"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "--xdevice-backend=torch",
            "--xdevice-virtual-gpus=2",
            __file__,
        ],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"CXX": "absent"},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "5 passed" in done.stdout, done.stdout[-6000:] + done.stderr[-3000:]
