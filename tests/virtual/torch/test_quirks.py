"""What only PyTorch does on virtual GPUs, and about mixing devices; two virtual GPUs are there."""

import copy
import gc
import io
import os
import pickle
import re
import subprocess
import sys
import threading
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (everybody's name for it)
from torch import nn
from torch.utils.checkpoint import (
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)
from torch.utils.data import DataLoader, TensorDataset

import xdevice
from xdevice import cpu, device_of, gpu, strict, to_device
from xdevice.virtual.request import ENV
from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.in_python.devices import InPython

FIRST, SECOND = "vgpu:0", "vgpu:1"


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("torch"):
        xdevice.count()  # settles the devices
        yield


BEGIN = """
import warnings, torch, xdevice
warnings.simplefilter("error")
xdevice.use("torch")
"""


@pytest.fixture
def run(in_a_fork):
    """What a process of its own, which has asked for nothing yet, prints."""

    def run(code, **environment):
        done = in_a_fork("torch", BEGIN + code, **environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout + done.stderr

    return run


def on_both(call):
    """The call's tensors on the CPU and on a virtual GPU, from equal random numbers."""
    found = []
    for device in ("cpu", SECOND):
        torch.manual_seed(0)
        found.append([tensor.detach().cpu() for tensor in call(device)])
    return zip(*found, strict=True)


# ---------------------------------------------------------------- devices


def test_pytorchs_own_factories_and_modules_take_the_native_device():
    there = xdevice.native(gpu(1))
    assert there == torch.device("vgpu", 1)
    assert xdevice.as_device(there) is gpu(1)
    made = [
        torch.ones(2, device=there),
        torch.tensor([1, 2], device=there),
        torch.arange(3, device=there),
    ]
    made += [
        torch.rand(2, device=there),
        torch.ones(2).to(there),
        torch.ones(2).vgpu(1),
        nn.Linear(2, 2, device=there),
    ]
    made += [
        made[0].new(3),
        made[0].new_zeros(2),
        torch.empty_like(made[0]),
        made[0].clone(),
        made[0][1:],
    ]
    with there:
        made.append(torch.zeros(2))
    assert {device_of(x) for x in made} == {gpu(1)}


def test_the_current_device_belongs_to_the_thread_and_is_what_an_open_index_means():
    seen = []
    with torch.vgpu.device(1):
        assert (
            device_of(torch.ones(1, device="vgpu"))
            is xdevice.as_device(torch.device("vgpu"))
            is gpu(1)
        )
        thread = threading.Thread(
            target=lambda: seen.append(device_of(torch.ones(1, device="vgpu")))
        )
        thread.start()
        thread.join()
    assert seen == [gpu(0)]
    assert torch.vgpu.current_device() == 0


def test_torch_accelerator_tells_the_truth():
    accelerator = torch.accelerator
    assert accelerator.current_accelerator(check_available=True) == torch.device("vgpu")
    assert accelerator.device_count() == 2
    assert accelerator.is_available()
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == torch.vgpu.current_device() == 1
    assert accelerator.current_device_index() == 0
    x = torch.ones(256, device=SECOND)
    assert accelerator.memory_allocated(1) == xdevice.memory_stats(gpu(1))["allocated"] >= x.nbytes
    accelerator.synchronize()


def test_a_device_that_is_not_there_is_an_error_that_says_which_are():
    with pytest.raises(RuntimeError, match=r"invalid device ordinal 2; there are vgpu:0 to vgpu:1"):
        torch.ones(1, device="vgpu:2")


def test_memory_is_counted_until_the_last_view_of_it_is_gone():
    gc.collect()
    before = xdevice.memory_stats(gpu(1))["allocated"]
    x = torch.zeros(1000, device=SECOND)
    view = x[10:]
    del x
    assert xdevice.memory_stats(gpu(1))["allocated"] == before + 4000
    grown = torch.cat([view, view])
    assert xdevice.memory_stats(gpu(1))["allocated"] == before + 4000 + grown.nbytes
    del view, grown
    stats = xdevice.memory_stats(gpu(1))
    assert stats["allocated"] == before
    assert stats["peak"] >= before + 4000 + 7920


def test_each_virtual_gpu_has_random_numbers_of_its_own_from_one_seed():
    xdevice.seed(3)
    first, second = torch.rand(3, device=FIRST), torch.rand(3, device=SECOND)
    torch.rand(5)  # on the CPU: shifts nothing
    after = torch.rand(3, device=SECOND)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(3, device=SECOND), second)
    assert torch.equal(first.cpu(), second.cpu())
    assert torch.equal(torch.rand(3, device=SECOND), after)


def test_a_generator_belongs_to_its_device():
    generator = torch.Generator(device=SECOND).manual_seed(4)
    assert generator.device == torch.device(SECOND)
    assert isinstance(torch.default_generator, torch.Generator)
    first = torch.rand(3, device=SECOND, generator=generator)
    assert torch.equal(first, torch.rand(3, device=SECOND, generator=generator.manual_seed(4)))
    for other in (generator, torch.Generator()):
        with pytest.raises(RuntimeError, match="Expected a 'vgpu:0' generator device but found"):
            torch.rand(3, device=FIRST, generator=other)


# ---------------------------------------------------------------- training, as on the CPU


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn, self.head = (
            getattr(nn, kind)(8, 6, 2, batch_first=True, bidirectional=True),
            nn.Linear(12, 10),
        )

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 10)
        self.encoder = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(1))


def lenet():
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.SiLU(), nn.MaxPool2d(2)),
        *(
            nn.Conv2d(6, 8, 3),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(8 * 6 * 6, 10),
        ),
    )


def train(device, build, x, optimiser):
    """The loss and the parameters and buffers after four steps."""
    torch.manual_seed(0)
    model, target = build(), torch.arange(len(x)) % 10
    steps = optimiser(model.parameters())  # made before the model is moved
    model.to(device)
    x, target = x.to(device), target.to(device)
    torch.manual_seed(1)
    for _ in range(4):
        steps.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        steps.step()
    return [loss, *model.state_dict().values()]


OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, 1e-2),
    "fused Adam": lambda p: torch.optim.Adam(p, 1e-2, fused=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-3),
}


@pytest.mark.parametrize(
    "optimiser",
    [
        "SGD",
        "fused Adam",
        *(pytest.param(name, marks=pytest.mark.weekly) for name in ("Adam", "RMSprop")),
    ],
)
@pytest.mark.parametrize("build", [lenet, Attention])
def test_training_equals_the_cpus_to_the_last_bit(build, optimiser):
    torch.manual_seed(2)
    x = torch.randint(0, 20, (4, 7)) if build is Attention else torch.randn(8, 1, 28, 28)
    for a, b in on_both(lambda device: train(device, build, x, OPTIMISERS[optimiser])):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_training_equals_the_cpus(kind):
    torch.manual_seed(2)
    x = torch.randn(4, 7, 8)
    for a, b in on_both(
        lambda device: train(device, lambda: Recurrent(kind), x, OPTIMISERS["SGD"])
    ):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_packed_sequences_and_padding_masks_are_computed_alike():
    def packed(device):
        data = nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
        return [nn.LSTM(2, 3).to(device)(data.to(device))[0].data]

    def padded(device):
        encoder = (
            nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
            .to(device)
            .eval()
        )
        mask = torch.tensor([[False, False, True], [False, False, False]], device=device)
        made = encoder(torch.randn(2, 3, 8).to(device), src_key_padding_mask=mask)
        return [made[~mask]]

    for call in (packed, padded):
        for a, b in on_both(call):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_autocast_computes_in_lower_precision_and_scales_gradients():
    model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(12, 3)).to(SECOND)
    optimiser, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("vgpu")
    before = model[0].weight.detach().clone()
    with torch.autocast("vgpu", dtype=torch.bfloat16):
        made = model(torch.ones(2, 1, 8, device=SECOND))
        loss = F.cross_entropy(made, torch.tensor([0, 1], device=SECOND))
    assert (made.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    scaler.update()
    assert model[0].weight.grad.dtype == torch.float32
    assert not torch.equal(before, model[0].weight)
    with torch.autocast("cpu"):
        assert (
            nn.Linear(8, 2, device=SECOND)(torch.ones(1, 8, device=SECOND)).dtype == torch.float32
        )


def test_gradients_flow_across_devices():
    w0, w1 = (torch.randn(3, 3) for _ in range(2))

    def call(device):
        first, second = ("cpu", "cpu") if device == "cpu" else (FIRST, SECOND)
        x, a, b = torch.ones(2, 3), w0.clone().to(first), w1.clone().to(second)
        leaves = [t.requires_grad_() for t in (x, a, b)]
        hidden = to_device((to_device(x, first) @ a).relu(), second)
        (hidden @ b).cpu().sum().backward()
        assert [t.grad.device for t in leaves] == [t.device for t in leaves]
        return [t.grad for t in leaves]

    for a, b in on_both(call):
        assert torch.equal(a, b)


def test_data_parallel_computes_as_one_device():
    def call(device):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        x = torch.randn(10, 4)
        model = nn.DataParallel(model.to(FIRST)) if device != "cpu" else model
        made = model(x)
        made.square().sum().backward()
        return [made, *(p.grad for p in model.parameters())]

    for a, b in on_both(call):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"pin_memory": True}], ids=str)
def test_a_data_loader_feeds_a_virtual_gpu(options):
    data = TensorDataset(torch.arange(12.0).view(6, 2))
    sums = [x.to(SECOND, non_blocking=True).sum().item() for (x,) in DataLoader(data, 2, **options)]
    assert sums == [6, 22, 38]


def test_tensors_of_a_virtual_gpu_in_a_forked_worker_are_an_error_as_on_cuda():
    data = TensorDataset(torch.ones(4, 2, device=SECOND))
    with pytest.raises(RuntimeError, match="Cannot use virtual GPUs in a forked process"):
        list(DataLoader(data, 2, num_workers=1, timeout=60))


# ---------------------------------------------------------------- PyTorch's own tools ask torch.vgpu by name


class Noisy(nn.Sequential):
    """Layers with dropout, made from the same numbers each time."""

    def __init__(self):
        super().__init__(
            nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 2)
        )


def at_once(model, x):
    return model(x)


def selectively(model, x):
    contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    return checkpoint(model, x, use_reentrant=False, context_fn=contexts)


def in_lower_precision(model, x):
    with torch.autocast(x.device.type, torch.bfloat16):
        return checkpoint(model, x, use_reentrant=False).float()


CHECKPOINTS = {
    "reentrant": lambda model, x: checkpoint(model, x, use_reentrant=True),
    "not reentrant": lambda model, x: checkpoint(model, x, use_reentrant=False),
    "sequential": lambda model, x: checkpoint_sequential(model, 2, x, use_reentrant=False),
    "selective": selectively,
    "autocast": in_lower_precision,
}


@pytest.mark.parametrize("run", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_gradient_checkpointing_draws_the_same_dropout_twice(run):
    def call(device, run=run):
        model, x = (
            Noisy().to(device),
            torch.linspace(-1, 1, 32).view(4, 8).to(device).requires_grad_(),
        )
        torch.manual_seed(1)
        run(model, x).square().sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    for a, b in on_both(call):
        assert torch.equal(a, b)
    if run is not in_lower_precision:
        for a, b in zip(call(SECOND), call(SECOND, at_once), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrized_weights_train_as_on_the_cpu(kind):
    def call(device):
        model = getattr(nn.utils.parametrizations, kind)(nn.Linear(6, 6)).to(device)
        optimiser, x = torch.optim.SGD(model.parameters(), 0.1), torch.ones(3, 6, device=device)
        for _ in range(2):
            optimiser.zero_grad()
            model(x).square().sum().backward()
            optimiser.step()
        assert device_of(model) is xdevice.as_device(device)
        return [*model.state_dict().values(), model.weight]

    for a, b in on_both(call):
        torch.testing.assert_close(a, b)


def test_what_is_saved_for_backward_may_wait_in_pinned_memory():
    x = torch.ones(3, device=SECOND, requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True, device_type="vgpu"):
        y = (x * x).sum()
    y.backward()
    assert x.grad.device == x.device
    assert x.grad.tolist() == [2, 2, 2]


def test_pinned_memory_says_that_it_is_pinned():
    made = [
        torch.empty(2, pin_memory=True),
        torch.zeros(2).pin_memory(),
        torch.tensor([1.0], pin_memory=True),
    ]
    assert [x.is_pinned() for x in made] == [True] * 3
    assert not torch.zeros(2).is_pinned()
    assert made[0][1:].is_pinned()
    assert not made[0].to(SECOND).is_pinned()
    with pytest.raises(RuntimeError, match=r"(?i)only dense CPU tensors can be pinned"):
        torch.empty(2, pin_memory=True, device=SECOND)


def test_an_open_index_means_the_current_device_everywhere():
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    with torch.vgpu.device(1):
        x = torch.ones(2)
        made = [
            x.to("vgpu"),
            x.to(device=torch.device("vgpu")),
            x.vgpu(),
            x.new_tensor([1.0], device="vgpu"),
        ]
        made += [
            torch.tensor([1.0], device="vgpu"),
            torch.as_tensor([1.0], device="vgpu"),
            torch.ones(1, device="vgpu"),
        ]
        made += [torch.asarray([1.0], device="vgpu"), torch.load(file, map_location="vgpu")]
        made += [
            nn.Linear(2, 2).to("vgpu"),
            nn.Linear(2, 2, device="vgpu"),
            torch.ones(2, device=FIRST).to("vgpu"),
        ]
        assert {device_of(x) for x in made} == {gpu(1)}
        assert x.to(torch.ones(1, device=FIRST)).device == torch.device(FIRST), (
            "as another tensor is"
        )
    assert torch.ones(2).to("vgpu").device == torch.device(FIRST)


def test_subclasses_that_let_to_through_still_do():
    let_through = (
        torch.nn.parameter.UninitializedParameter._allowed_methods
    )  # listed when torch was imported
    assert torch.Tensor.to in let_through
    assert torch.Tensor.to in set(let_through)


@pytest.mark.weekly
@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore::torch.jit.TracerWarning")
@pytest.mark.weekly
def test_scripted_traced_and_compiled_code_makes_tensors_on_virtual_gpus():
    def make(x: torch.Tensor):
        return (
            torch.zeros(2, device=x.device)
            + torch.tensor([1.0, 2.0], device=x.device)
            + x.to(x.device)
        )

    x = torch.ones(2, device=SECOND)
    compiled = torch.compile(make, backend="eager", fullgraph=True)
    for call in (
        torch.jit.script(make),
        torch.jit.trace(make, (x,)),
        torch.fx.symbolic_trace(make),
        compiled,
    ):
        assert device_of(call(x)) is gpu(1)
        assert call(x).tolist() == [2, 3]
    assert torch.func.jvp(torch.sin, (x,), (x,))[1].device == x.device
    layer = nn.TransformerEncoderLayer(2, 1, 4, 0.0).to(SECOND)
    made = torch.compile(layer)(
        x[None]
    )  # without a backend, inductor is meant, which has none for virtual GPUs
    torch.testing.assert_close(made, layer(x[None]))


def test_streams_are_queues_that_are_always_done():
    stream, before = torch.vgpu.Stream(1), torch.vgpu.current_stream()
    start, end = (torch.vgpu.Event(enable_timing=True) for _ in range(2))
    with torch.vgpu.stream(stream):
        assert torch.vgpu.current_stream() is torch.accelerator.current_stream() is stream
        x = torch.ones(64, 64, device="vgpu")
        start.record()
        for _ in range(20):
            x = x @ x
        end.record()
    x.record_stream(stream)
    stream.wait_stream(before)
    stream.wait_event(stream.record_event())
    stream.synchronize()
    assert device_of(x) is xdevice.as_device(stream.device) is gpu(1)
    assert stream.query()
    assert end.query()
    assert start.elapsed_time(end) > 0
    assert torch.vgpu.current_stream() == before
    assert torch.vgpu.current_device() == 0


def test_storages_are_resized_and_keep_their_values_or_say_what_to_do():
    x = torch.ones(2, device=SECOND)
    storage, held = x.untyped_storage(), torch.vgpu.memory_allocated(1)
    assert storage.resize_(8) is storage
    if isinstance(runtime.in_use(), InPython):
        with pytest.raises(NotImplementedError, match="resize the tensor with resize_"):
            storage.resize_(100)
    else:
        assert storage.resize_(100).nbytes() == 100
        assert x.tolist() == [1, 1]
        assert torch.vgpu.memory_allocated(1) == held + 92
        assert storage.resize_(0).nbytes() == 0
        assert torch.vgpu.memory_allocated(1) == held - 8


@pytest.mark.weekly
def test_they_are_initialized_by_their_first_use_and_a_mesh_then_takes_the_local_rank(run):
    out = run("""
import os, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
xdevice.virtual_gpus(2)
print(torch.vgpu.is_initialized())
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
os.environ["LOCAL_RANK"] = "1"
init_device_mesh("vgpu", (1,))
print(torch.vgpu.current_device(), torch.vgpu.is_initialized())
dist.destroy_process_group()
""")
    assert out.split()[-3:] == ["False", "1", "True"]


# ---------------------------------------------------------------- moving models


def test_a_model_moves_in_place_and_keeps_parameters_hooks_gradients_and_weak_references():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[0].bias = nn.Parameter(torch.ones(2), requires_grad=False)
    model[0].weight.register_hook(lambda grad: grad * 2)
    parameters, weak = list(model.parameters()), weakref.ref(model[0].weight)
    for device in (FIRST, SECOND, "cpu", SECOND):
        made = model(torch.ones(3, 2).to(model[0].weight.device))  # a graph that knows them
        made.sum().backward()
        model.to(device)
        assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
        assert weak() is model[0].weight
        assert {p.grad.device for p in parameters if p.requires_grad} == {torch.device(device)}
        assert device_of(model) is xdevice.as_device(device)
        assert not model[0].bias.requires_grad
    single = model[0]
    single.zero_grad()
    single(torch.ones(1, 2, device=SECOND)).sum().backward()
    assert single.weight.grad.tolist() == [[2, 2], [2, 2]]


def test_a_model_moves_in_inference_mode_too():
    before = nn.Linear(2, 2)
    with torch.inference_mode():
        for model in (before, nn.Linear(2, 2)):
            assert device_of(model.to(SECOND)) is gpu(1)
            assert model(torch.ones(1, 2, device=SECOND)).device.index == 1
    before(torch.ones(1, 2, device=SECOND)).sum().backward()
    assert before.weight.grad.device == torch.device(SECOND)


def test_moving_between_forward_and_backward_is_an_error_rather_than_a_lost_gradient():
    model = nn.Linear(2, 2)
    loss = model(torch.ones(1, 2)).sum()
    model.to(FIRST)
    with pytest.raises(RuntimeError, match="moved to another device between forward and backward"):
        loss.backward()


def test_a_lazy_module_stays_lazy_and_its_optimiser_keeps_its_parameters():
    model = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    optimiser, x = torch.optim.SGD(model.parameters(), 0.1), torch.ones(2, 1, 4, 4)
    for device in (SECOND, "cpu", FIRST):
        model.to(device)
        assert device_of(model) is xdevice.as_device(device)
    assert all(
        layer.vgpu(1).weight.device == torch.device(SECOND)
        for layer in (nn.LazyLinear(2), model[3])
    )
    model.vgpu(0)(x.to(FIRST)).square().sum().backward()
    before = model[3].weight.detach().clone()
    optimiser.step()
    assert type(model[0]) is nn.Conv2d
    assert device_of(model) is gpu(0)
    assert not torch.equal(before, model[3].weight)


def test_a_parameter_of_a_class_of_its_own_keeps_it_and_what_was_put_on_it():
    class Marked(nn.Parameter):
        pass

    model = nn.Module()
    model.weight = kept = Marked(torch.ones(2))
    kept.mark = 3
    model.to(SECOND)
    assert model.weight is kept
    assert type(kept) is Marked
    assert kept.mark == 3
    assert device_of(kept) is gpu(1)


class Stays(nn.Module):
    """A module whose move fails."""

    def _apply(self, fn, recurse=True):
        raise ValueError("it stays")


def test_a_spread_model_is_put_back_where_it_was_if_the_move_fails():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).to(FIRST), nn.BatchNorm1d(2)])
    for layer in model[:2]:
        layer(torch.ones(1, 2, device=layer.weight.device)).sum().backward()

    def state():
        tensors = [
            *model.parameters(),
            *model.buffers(),
            *(p.grad for p in model.parameters() if p.grad is not None),
        ]
        return [(id(tensor), tensor.device, tensor.data_ptr()) for tensor in tensors]

    before = state()
    failing = nn.ModuleList([nn.Linear(2, 2), Stays()])
    for tree in ([model, failing], nn.ModuleList([model, Stays()])):
        with pytest.raises(ValueError, match="it stays"):
            to_device(tree, gpu(1))
        assert state() == before
        assert device_of(failing) is cpu()


def test_a_buffer_that_two_modules_share_is_moved_once():
    model = nn.ModuleList([nn.BatchNorm1d(2), nn.BatchNorm1d(2)])
    model[1].running_mean = model[0].running_mean
    for copy_of in (True, None):
        moved = to_device({"model": model, "mean": model[0].running_mean}, gpu(1), copy=copy_of)
        assert moved["model"][0].running_mean is moved["model"][1].running_mean is moved["mean"]
        assert device_of(moved) is gpu(1)


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore::torch.jit.TracerWarning")
def test_torchscript_moves_in_place_computes_there_and_its_optimiser_keeps_its_parameters():
    x = torch.ones(4, 2)
    for make in (torch.jit.script, lambda model: torch.jit.trace(model, (x,))):
        model = make(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)))
        expected, parameters = model(x), dict(model.named_parameters())
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        for device in (gpu(1), cpu(), gpu(0)):
            assert to_device(model, device) is model
            assert device_of(model) is device
            assert all(
                parameters[name] is parameter for name, parameter in model.named_parameters()
            )
        made = model(x.to(FIRST))
        torch.testing.assert_close(made.cpu(), expected)
        made.square().sum().backward()
        before = parameters["2.bias"].detach().clone()
        optimiser.step()
        assert not torch.equal(before, dict(model.named_parameters())["2.bias"])
        assert device_of(to_device(model, "cpu", copy=True)) is cpu()
        assert device_of(model) is gpu(0)


def test_tied_parameters_stay_tied():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight = model[0].weight
    model.to(SECOND)
    assert model[1].weight is model[0].weight
    assert isinstance(model[0].weight, nn.Parameter)


def test_a_file_saved_on_a_virtual_gpu_loads_on_any_device():
    model = nn.Linear(2, 2).to(SECOND)
    for where, expected in (
        (None, gpu(1)),
        ("cpu", cpu()),
        (FIRST, gpu(0)),
        ({SECOND: FIRST}, gpu(0)),
    ):
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert device_of(loaded) is expected
        assert torch.equal(loaded["weight"].cpu(), model.weight.cpu())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert device_of(copied) is gpu(1)
        assert torch.equal(copied.weight, model.weight)
        assert copied.weight.data_ptr() != model.weight.data_ptr()


# ---------------------------------------------------------------- separate from host memory, no crash


def test_numpy_and_dlpack_do_not_take_a_virtual_gpu_for_the_host():
    x = torch.ones(2, device=SECOND)
    for call in (
        x.numpy,
        lambda: np.asarray(x),
        lambda: np.from_dlpack(x),
        lambda: memoryview(x),
        x.__dlpack_device__,
    ):
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            call()
    assert x.tolist() == [1, 1]
    assert xdevice.to_numpy(x).tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own, of its prototypes
def test_sparse_tensors_work_where_compiled_and_others_are_a_clear_error():
    x = torch.ones(2, 2, device=SECOND)
    words, made = (
        torch.tensor([0, 1], device=SECOND),
        ([[0, 0, 1, 1], [0, 1, 0, 1]], [1.0] * 4, (2, 2)),
    )
    w = torch.ones(2, 2, device=SECOND, requires_grad=True)
    for call in (
        lambda: x.to_sparse(),
        lambda: torch.ones(2, 2).to_sparse().to(SECOND),
        lambda: torch.sparse.mm(x.to_sparse_csr(), x.to_sparse_csr()).mul(0.5),
        lambda: torch.ones(2, 2).to_sparse_csr().to(SECOND).neg().neg(),
        lambda: torch.sparse_coo_tensor(*made, device=SECOND),
        lambda: torch.autograd.grad(F.embedding(words, w, sparse=True).sum(), w)[0],
    ):
        if isinstance(runtime.in_use(), InPython):
            with pytest.raises(NotImplementedError, match=r"sparse.* need a C\+\+ compiler"):
                call()
        else:
            assert torch.equal(call().to_dense(), x)


def test_lazy_conjugates_and_negatives_are_copied_multiplied_and_read_as_on_the_cpu():
    def call(device):
        z = torch.tensor([[1 + 2j, 3 - 1j], [2j, 1]]).to(device)
        made = [
            z.conj(),
            z.conj() @ z,
            z.mH @ z,
            z.conj().imag,
            z.conj().clone(),
            torch.dot(z[0].conj(), z[1]),
        ]
        made += [z.conj().to("cpu"), z.conj().imag.to(device if device == "cpu" else FIRST)]
        return [*made, torch.zeros(2, 2).to(device).copy_(z.conj().imag), z.clone().conj().copy_(z)]

    for a, b in on_both(call):
        assert torch.equal(a, b)


def test_results_grow_and_shrink_and_keep_their_place():
    x = torch.arange(6.0, device=SECOND).view(2, 3)
    assert torch.equal(torch.add(x, x, out=torch.empty(0, device=SECOND)), x * 2)
    small, large = torch.empty(2, device=SECOND), torch.zeros(3, 4, device=SECOND)
    for out in (small, large):
        with pytest.warns(UserWarning, match="resized"):
            assert torch.add(x, x, out=out) is out
        assert torch.equal(out, x * 2)
    grown = torch.ones(1, device=SECOND).addbmm_(
        torch.ones(4, 5, 3).to(SECOND), torch.ones(4, 3, 10).to(SECOND)
    )
    assert grown.shape == (5, 10)
    assert grown.eq(13).all()
    assert x.clone().resize_(3, 3).view(-1)[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert x.clone().t().resize_(2, 2).tolist() == [[0, 1], [2, 3]]


def test_what_cannot_be_right_is_an_error_as_on_the_cpu():
    x, attend = torch.arange(6.0, device=SECOND), nn.functional.scaled_dot_product_attention
    if isinstance(runtime.in_use(), InPython):
        with pytest.raises(RuntimeError, match="share"):
            x.view(2, 3).resize_(9)
    else:
        view = x.view(2, 3).resize_(9)
        assert x.add_(1).tolist() == view[:6].tolist() == [1, 2, 3, 4, 5, 6], (
            "it has grown for both"
        )
    for match, call in (
        ("out of bounds", lambda: x.as_strided((9, 9), (1, 1))),
        ("single memory location", lambda: x[1:].add_(x[:-1])),
        ("single memory location", lambda: torch.zeros(1, device=SECOND).expand(3).add_(1)),
        (
            'on device "vgpu:1" to a storage on different device "cpu"',
            lambda: x[:0].set_(torch.ones(3).untyped_storage()),
        ),
        (
            'on different device "vgpu:0"',
            lambda: x[:0].set_(torch.ones(3, device=FIRST).untyped_storage(), 0, (3,)),
        ),
        ("at least 2 dimensional, but got query.dim: 1", lambda: attend(x, x[None], x[None])),
        (
            "to have the same dtype, but got query.dtype: float key",
            lambda: attend(x[None], *[x[None].double()] * 2),
        ),
        ("got attn_mask.dtype: int", lambda: attend(x[None], x[None], x[None], x[None, :1].int())),
        (
            "attn_mask should not be set when is_causal",
            lambda: attend(*[x[None]] * 3, x[None, :1], is_causal=True),
        ),
    ):
        with pytest.raises(RuntimeError, match=match):
            call()


def test_storages_are_made_copied_and_compared_without_a_crash():
    x = torch.arange(6.0, device=SECOND)
    storage = x.untyped_storage()
    made = [
        torch.UntypedStorage(4, device=SECOND),
        storage.new(),
        storage.clone(),
        torch.UntypedStorage([1, 2], device=SECOND),
    ]
    assert {s.device for s in made} == {torch.device(SECOND)}
    assert made[2].tolist() == storage.cpu().tolist()
    assert x.is_set_to(x)
    assert not x.is_set_to(x.clone())
    host = torch.arange(6.0)
    moved = host.untyped_storage().vgpu(1)
    assert moved.is_vgpu
    assert moved.device == x.device
    assert moved.tolist() == host.untyped_storage().tolist()
    assert not host.untyped_storage().is_vgpu


@pytest.mark.parametrize("where", ["tensor", "accumulated", "node"])
def test_a_hook_that_raises_in_backward_raises_it_there(where):
    def boom(*args):
        raise ValueError("boom")

    x = torch.ones(2, device=SECOND, requires_grad=True)
    y = x * 2
    attach = {"tensor": x.register_hook, "accumulated": x.register_post_accumulate_grad_hook}
    attach.get(where, y.grad_fn.register_hook)(boom)
    with pytest.raises(ValueError, match="boom"):
        y.sum().backward()


def test_the_interpreter_ends_cleanly_with_tensors_alive(run):
    out = run("""
import atexit, sys
xdevice.virtual_gpus(2)
x = torch.ones(3, device="vgpu:1", requires_grad=True)
(x * 2).sum().backward()
sys.modules["kept"], cycle = x.exp().sum(), [x * 5]
cycle.append(cycle)
atexit.register(lambda: print((x + 1).sum().item()))
""")
    assert out.split() == ["6.0"]


# ---------------------------------------------------------------- mixing


def test_mixing_is_cudas_error_and_in_a_strict_block_ours():
    a, b = torch.ones(3, device=FIRST), torch.ones(3, device=SECOND)
    for other, words in ((b, "vgpu:0 and vgpu:1!"), (torch.ones(3), "vgpu:0 and cpu!")):
        message = (
            "Expected all tensors to be on the same device, but found at least two devices, "
            + words
        )
        with pytest.raises(RuntimeError, match=message) as caught:
            a + other
        assert not isinstance(caught.value, xdevice.MixedDeviceError)
        with (
            strict(),
            pytest.raises(
                xdevice.MixedDeviceError, match=r"aten::add was given tensors on .pu:0 and gpu:."
            ),
        ):
            a + other
    assert torch.equal((a + torch.tensor(1.0)).cpu(), torch.full((3,), 2.0)), (
        "a scalar on the CPU is a number"
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a.mul_(b),
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.add(a, a, out=b),
        lambda a, b: F.mse_loss(a, b),
        lambda a, b: nn.Linear(3, 3).to(a.device)(b),
        lambda a, b: nn.LSTM(3, 3).to(a.device)(b[None]),
        lambda a, b: nn.Conv1d(1, 1, 1).to(a.device)(b[None, None]),
        lambda a, b: torch.take_along_dim(a, b.long(), 0),
        lambda a, b: torch.block_diag(a, b),
        lambda a, b: F.embedding(b.long(), a[:, None]),
    ],
)
@pytest.mark.parametrize("other", [SECOND, "cpu"])
def test_mixing_in_a_strict_block_is_an_xdevice_error_and_changes_nothing(call, other):
    a, b = torch.ones(3, device=FIRST), torch.ones(3, device=other)
    with strict(), pytest.raises(xdevice.MixedDeviceError, match="was given tensors on") as caught:
        call(a, b)
    assert caught.value.devices == {device_of(a), device_of(b)}
    assert a.tolist() == b.tolist() == [1, 1, 1]


def test_backward_runs_in_the_thread_that_calls_it():
    x = torch.ones(3, device=SECOND, requires_grad=True)
    y = x * 2
    threads = []
    y.register_hook(lambda gradient: threads.append(threading.get_ident()))
    y.sum().backward()
    assert threads == [threading.get_ident()]


def test_strict_holds_in_backward_and_in_other_threads():
    there = torch.ones(3, device=SECOND)

    class Mixes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad + there

    x = torch.ones(3, device=FIRST, requires_grad=True)
    errors = []

    def work():
        try:
            x + there
        except xdevice.MixedDeviceError as error:
            errors.append(error)

    with strict():
        with pytest.raises(xdevice.MixedDeviceError, match="aten::add"):
            Mixes.apply(x).sum().backward()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(errors) == 1


def test_strict_allows_copies_and_other_errors_stay_torchs():
    a, b = torch.ones(3, device=FIRST), torch.zeros(3, device=SECOND)
    with strict():
        assert (to_device(a, gpu(1)) + b).tolist() == b.copy_(a).tolist() == [1, 1, 1]
        with pytest.raises(RuntimeError, match="must match the size") as caught:
            a + torch.ones(4, device=FIRST)
    assert not isinstance(caught.value, xdevice.MixedDeviceError)


def test_a_strict_block_is_left_in_any_order_and_by_any_thread():
    depth = torch._C._len_torch_function_stack
    block, place = strict(), torch.device(SECOND)
    block.__enter__()
    place.__enter__()
    block.__exit__(None, None, None)
    assert depth() == 1
    assert device_of(torch.ones(1)) is gpu(1)
    place.__exit__(None, None, None)
    thread = threading.Thread(target=block.__enter__)
    thread.start()
    thread.join()
    block.__exit__(None, None, None)
    assert depth() == 0
    with pytest.raises(RuntimeError, match="Expected all tensors"):
        torch.ones(1, 2, device=FIRST) + torch.ones(1, 2, device=SECOND)


# ---------------------------------------------------------------- asking for them


def test_it_is_never_too_late_and_tensors_stay_where_they_are(run):
    out = run("""
x = torch.ones(3, requires_grad=True)
x.sum().backward()
print(xdevice.device_of(x), xdevice.virtual_gpus(3))
y = (x.to("vgpu:2") * 2).sum()
y.backward()
print(xdevice.device_of(x), xdevice.device_of(y), x.grad.tolist())
""").splitlines()
    assert out[0].startswith("cpu:0 [Device('gpu:0')")
    assert out[1] == "cpu:0 gpu:2 [3.0, 3.0, 3.0]"


def test_names_of_a_virtual_gpu_mean_it_before_and_after_it_is_used(run):
    code = """
d = xdevice.as_device('vgpu:1')
x = xdevice.to_device(torch.ones(1), d)
names = [x.device, str(x.device), repr(x.device), torch.vgpu.Stream(1).device]
print(*(xdevice.as_device(name) is d is xdevice.gpu(1) for name in names), xdevice.device_of(x) is d)
"""
    assert run(code, **{ENV: "2"}).split()[-5:] == ["True"] * 5


@pytest.mark.weekly
def test_torch_compile_traces_a_later_use_in_one_graph_and_asks_again_on_another_device(run):
    code = """
net = torch.nn.Linear(2, 2)
def fn(x):
    here = xdevice.device_of(x)
    both = xdevice.is_same_device(x, [x]) and xdevice.check_same_device(x, {"x": [x]}) == here
    made = xdevice.ones(2, device=here) + xdevice.tensor([1.0, 2.0], dtype="float32", device=here)
    tree = xdevice.to_device([x, {"x": x}], "gpu:1")
    return made * tree[1]["x"].to(made.device), both, tree[0] is tree[1]["x"], here.kind, xdevice.device_of(net).kind
fn(torch.ones(2))  # a first use would break the graph
compiled = torch.compile(fn, backend="eager", fullgraph=True)
def check(x):
    made, *rest = compiled(x)
    print(made.device, made.tolist(), *rest)
check(torch.ones(2))
check(torch.ones(2))
check(torch.nn.Parameter(torch.ones(2, device="vgpu:1")))
check(torch.ones(2))
make = torch.compile(lambda x: (x + 1, xdevice.ones(2)), backend="eager")
def where():
    return str(make(torch.ones(2))[1].device)
outside = where()
with xdevice.scope("gpu:1"):
    print(outside, where())
print(where())
"""
    on_cpu = "cpu [2.0, 3.0] True True cpu cpu"
    out = run(code, **{ENV: "2"}).splitlines()
    assert out[-6:] == [
        on_cpu,
        on_cpu,
        "vgpu:1 [2.0, 3.0] True True gpu cpu",
        on_cpu,
        "cpu vgpu:1",
        "cpu",
    ]


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"
)
def test_packed_and_frozen_weights_do_not_stay_behind_without_an_error():
    packed = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 2)), {nn.Linear})
    for model in (packed, torch.jit.freeze(torch.jit.script(nn.Linear(3, 2).eval()))):
        with pytest.raises(xdevice.MisplacedError, match="chose cpu:0"):
            to_device([model, torch.ones(1)], gpu(1))
        with pytest.raises(xdevice.MixedDeviceError, match=r"constant0.*on gpu:1: \[1\]"):
            device_of([model, torch.ones(1, device=SECOND)])


def test_another_owner_of_privateuse1_is_an_error_that_names_it(run):
    out = run("""
torch.utils.rename_privateuse1_backend("other")
try:
    xdevice.virtual_gpus(2)
except xdevice.VirtualDeviceError as error:
    print(error)
""")
    assert "PrivateUse1, which 'other' has taken" in out


def test_without_virtual_gpus_torch_is_left_as_it_was(run):
    out = run("""
def parts():
    engine = torch.autograd.Variable._execution_engine
    replaced = torch.Tensor.new, torch.Tensor.to, torch.tensor, torch.empty, torch.UntypedStorage.resize_
    return torch.nn.Module._apply, torch.UntypedStorage.__new__, torch.Generator, *replaced, engine
before = parts()
xdevice.count(), xdevice.to_device(torch.ones(2), "cpu")
with xdevice.strict():
    torch.ones(2) + torch.ones(2)
print(before == parts(), torch._C._get_privateuse1_backend_name())
""")
    assert out.split() == ["True", "privateuseone"]


def test_gradients_in_inference_mode_are_those_of_any_other():
    with torch.inference_mode():
        made_here = torch.tensor([1.0, 2.0], device=SECOND)
        _, inside = xdevice.value_and_grad(lambda w: (w * w).sum())(made_here)
    _, after = xdevice.value_and_grad(lambda w: (w * w).sum())(made_here)
    assert inside.tolist() == after.tolist() == [2, 4]


@pytest.mark.weekly
@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param("mixing_is or resized or a_lazy_module or data_parallel or sparse", id="some"),
        pytest.param("training_equals or recurrent", id="training"),
    ],
)
def test_without_a_compiler_they_are_written_in_python_and_do_the_same(chosen):
    if isinstance(runtime.in_use(), InPython):
        pytest.skip("this is that run")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", chosen]
    done = subprocess.run(
        [*command, "--xdevice-backend=torch", "--xdevice-virtual-gpus=2", __file__],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"CXX": "absent"},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "passed" in done.stdout, done.stdout[-6000:] + done.stderr[-3000:]


# ---------------------------------------------------------------- PyTorch's own database of operations

SOME = re.findall(
    r"\S+",
    """
    add addbmm addmm bmm cat cumsum diff div.no_rounding_mode exp fft.rfft gather index_add index_put index_select
    linalg.solve linalg.svd log_softmax.with_dtype masked_fill matmul max.reduction_with_dim mean mode mul
    nn.functional.avg_pool2d nn.functional.batch_norm nn.functional.conv2d nn.functional.conv_transpose2d
    nn.functional.cross_entropy nn.functional.ctc_loss nn.functional.dropout nn.functional.embedding
    nn.functional.gelu nn.functional.group_norm nn.functional.interpolate.bilinear nn.functional.layer_norm
    nn.functional.linear nn.functional.max_pool2d nn.functional.multi_head_attention_forward
    nn.functional.scaled_dot_product_attention nn.functional.silu norm normal pow prod randint roll scatter_add
    sigmoid softmax sort std sum take_along_dim tanh to topk tril unfold unique var where native_dropout_backward
    resize_ as_strided to_sparse sparse.mm.reduce
    """,
)
SPARSE = "mul@sparse_coo", "masked.sum@sparse_csr", "sgn@sparse_bsr"


@pytest.mark.weekly
def test_some_of_pytorchs_operations_agree_with_the_cpu_forward_and_backward():
    job = Path(__file__).parent / "operations" / "opinfo.py"
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(job),
        "--samples",
        "2",
        "--ops",
        ",".join([*SOME, *SPARSE]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{len(SOME)} of {len(SOME)} runnable operations agree" in done.stdout
    assert "3 of 3 runnable operations on sparse tensors" in done.stdout


def test_a_layout_that_cannot_move_is_not_supported():
    with pytest.raises(xdevice.NotSupportedError, match="torch cannot move such a tensor to gpu:1"):
        to_device(torch.eye(4).to_mkldnn(), gpu(1))
