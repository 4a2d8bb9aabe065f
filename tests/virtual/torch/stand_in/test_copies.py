"""What is seen of copies on two virtual GPUs: on those that stand in, and weekly on the others, too."""

import contextvars
import gc
import threading
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers

import xdevice
from xdevice import TransferError, transfer_guard, watch_transfers
from xdevice.backends.torch.hardware import gpus
from xdevice.virtual.torch import runtime

GPU = gpus()[0]
STANDS_IN = GPU == "cuda"
IS_COMPILED = type(runtime.in_use()).__name__ == "Compiled"


def seen(report):
    """What was copied: kind, route and number, in order."""
    return [(found.kind, f"{found.from_}>{found.to}", found.copies) for found in report.findings]


@pytest.fixture
def of(tmp_path):
    """What a line copies, where there are x = [0, 1, 2, 3] on a GPU, and c = [1, 1, 1, 1] on the CPU."""

    def run(line):
        names = {
            "torch": torch,
            "np": np,
            "nn": nn,
            "xdevice": xdevice,
            "GPU": GPU,
            "x": torch.arange(4.0, device=GPU),
            "many": torch.arange(4, device=GPU),
            "table": torch.zeros(2, 4, device=GPU),
            "c": torch.ones(4),
            "pinned": torch.ones(4).pin_memory(),
        }
        file = tmp_path / "line.py"
        file.write_text(line)
        with watch_transfers() as report:
            exec(compile(line, file, "exec"), names)
        return seen(report)

    return run


TO_HOST, TO_GPU, ACROSS = "gpu:0>host", "host>gpu:0", "gpu:0>gpu:1"

COPIES = {
    "x.cpu()": ("copy", TO_HOST),
    "c.to(GPU)": ("copy", TO_GPU),
    "x.to(GPU + ':1')": ("copy", ACROSS),
    "x.copy_(c)": ("copy", TO_GPU),
    "c.copy_(x)": ("copy", TO_HOST),
    "torch.tensor([1, 2], device=GPU)": ("copy", TO_GPU),
    "xdevice.to_device(c, 'gpu:0')": ("copy", TO_GPU),
    "xdevice.to_numpy(x)": ("copy", TO_HOST),
    "np.asarray(x.cpu())": ("copy", TO_HOST),
    "x.sum().item()": ("number", TO_HOST),
    "float(x[0])": ("number", TO_HOST),
    "if x[1]: pass": ("number", TO_HOST),
    "x.tolist()": ("number", TO_HOST),
    "bool(x.any())": ("number", TO_HOST),
    "torch.allclose(x, x)": ("number", TO_HOST),
    "x[many[1]]": ("number", TO_HOST),
    "f'{x.sum():.3f}'": ("print", TO_HOST),
    "x[x > 1]": ("size", TO_HOST),
    "x[x > 1] = table[0, 2:]": ("size", TO_HOST),
    "x.nonzero()": ("size", TO_HOST),
    "torch.where(x > 1)": ("size", TO_HOST),
    "torch.masked_select(x, x > 1)": ("size", TO_HOST),
    "many.unique()": ("size", TO_HOST),
    "torch.equal(x, x)": ("size", TO_HOST),
    "many.repeat_interleave(many)": ("size", TO_HOST),
    "x[[0, 2]]": ("index", TO_GPU),
    "x[torch.tensor([0, 2])]": ("index", TO_GPU),
    "x[c > 0]": ("index", TO_GPU),
    "table[torch.tensor([0])] = x": ("index", TO_GPU),
    "x[many] = 2.0": ("index", TO_GPU),
    "torch.where(x > 1, c[0], x)": ("copy", TO_GPU),
    "x.masked_fill(x > 1, x[0])": ("number", TO_HOST),
    "x.histc()": ("number", TO_HOST),
    "x.to_sparse()": ("number", TO_HOST),
    "table[0] = c": ("index", TO_GPU),
}


@pytest.mark.parametrize("line", COPIES)
def test_a_line_that_copies_is_seen(line, of):
    assert of(line) == [(*COPIES[line], 1)]


@pytest.mark.parametrize(
    "line",
    """
    x.clone()
    x.double()
    x.clone().copy_(x)
    x + 1
    x + torch.tensor(2.0)
    x[many]
    x[1]
    x[1:3] = 5.0
    x[x > 1] = 5.0
    torch.where(x > 1, x, 0)
    x.masked_fill(x > 1, 0)
    x.clone().fill_(x[0])
    x.histc(3, 0, 1)
    torch.full((3,), 2.0, device=GPU)
    torch.randperm(4, device=GPU)
    torch.repeat_interleave(many, many, output_size=6)
    nn.functional.one_hot(many, 5)
    list(x)
    c.clone().tolist()
    c[c > 0]
    c.pin_memory()
    nn.functional.cross_entropy(table, many[:2])
    """.strip().splitlines(),
)
def test_a_line_that_does_not_copy_is_not_seen(line, of):
    assert of(line.strip()) == []


def test_a_tensor_that_is_shown_is_read_many_times_in_one_line(of):
    ((kind, route, copies),) = of("print(x)")
    assert (kind, route) == ("print", TO_HOST)
    assert copies > 4


@pytest.mark.skipif(not STANDS_IN, reason="torch leaves a number on the CPU for CUDA alone")
def test_a_number_written_to_one_element_is_sent_to_cuda_before_pytorch_2_15(of):
    fills_on_the_gpu = torch.__version__ >= (
        2,
        15,
    )  # by `fill_` of a number; 2.13 sends a tensor; 2.14 not tried
    assert of("x[1] = 5.0") == ([] if fills_on_the_gpu else [("index", TO_GPU, 1)])


@pytest.mark.skipif(not IS_COMPILED, reason="sparse tensors need a C++ compiler")
def test_a_sparse_tensor_is_its_indices_and_values(of):
    assert of("torch.eye(3).to_sparse().to(GPU)") == [("copy", TO_GPU, 2)]


def site_of(act):
    with watch_transfers() as report:
        act()
    (site,) = report._recorder.sites.values()
    return site


def test_bytes_pinned_memory_and_values_are_told():
    pageable, pinned = torch.ones(4), torch.ones(4).pin_memory()
    site = site_of(lambda: [pageable.to(GPU) for _ in range(3)])
    assert (site.copies, site.nbytes, site.pinned, site.non_blocking) == (3, 48, 0, 0)
    assert list(site.marks.values()) == [3]
    assert len(site_of(lambda: [torch.full((4,), float(i)).to(GPU) for i in range(3)]).marks) == 3
    assert not site_of(lambda: torch.ones(4, 4)[:, ::2].to(GPU)).marks, (
        "elements that are apart are not looked at"
    )
    site = site_of(lambda: pinned.to(GPU, non_blocking=True))
    assert (site.copies, site.nbytes, site.pinned, site.non_blocking) == (1, 16, 1, 1)


def test_a_model_that_moves_copies_at_one_line():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    with watch_transfers() as report:
        model.to(GPU)
    (found,) = report.findings
    assert (found.kind, found.copies, found.nbytes) == ("copy", 4, 4 * (4 * 3 + 3 + 3 * 2 + 2))
    assert found.source == "model.to(GPU)"
    assert found.file == __file__


def test_a_copy_in_backward_is_the_line_that_calls_backward():
    w, v = torch.ones(4, requires_grad=True), torch.ones(4, device=GPU, requires_grad=True)
    product = w.to(GPU + ":1") * v.to(GPU + ":1")
    with watch_transfers() as report:
        product.sum().backward()
    assert {found[:2] for found in seen(report)} == {
        ("gradient", "gpu:1>host"),
        ("gradient", "gpu:1>gpu:0"),
    }
    assert {found.source for found in report.findings} == {"product.sum().backward()"}
    product = w.to(GPU) * 2
    with watch_transfers() as report:
        torch.autograd.grad(product.sum(), w)
    assert seen(report) == [("gradient", TO_HOST, 1)]


class Looking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        gradient.cpu()
        return gradient


def test_a_function_that_backward_calls_has_lines_of_its_own():
    w = torch.ones(4, device=GPU, requires_grad=True)
    y = Looking.apply(w)
    y.register_hook(lambda gradient: gradient * gradient.norm().item())
    with watch_transfers() as report:
        y.sum().backward()
    lines = {found.source: found.kind for found in report.findings}
    assert lines["gradient.cpu()"] == "copy"
    assert lines.pop("gradient.cpu()")
    assert list(lines.values()) == ["number"]
    assert "norm().item()" in next(iter(lines))


def test_a_backward_within_a_backward_is_that_of_the_first():
    checkpoint = torch.utils.checkpoint.checkpoint
    w = torch.ones(4, device=GPU, requires_grad=True)
    with watch_transfers() as report:
        y = checkpoint(lambda x: (x.cpu() * 2).to(GPU), w, use_reentrant=True)
        y.sum().backward()
    assert {found.kind for found in report.findings if found.source == "y.sum().backward()"} == {
        "gradient"
    }
    assert "" not in {found.file for found in report.findings}


def test_guards_refuse_what_they_are_told_to_and_the_copy_is_not_made():
    x, c = torch.ones(4, device=GPU), torch.zeros(4)
    for read in (
        lambda: x.sum().item(),
        lambda: bool(x[0]),
        lambda: x[x > 0],
        lambda: str(x),
        lambda: x.tolist(),
    ):
        with (
            transfer_guard("forbid_implicit"),
            pytest.raises(TransferError, match=r"test_copies.py:\d+: "),
        ):
            read()
    with transfer_guard("forbid_implicit"):
        x.cpu(), c.to(GPU), x + 1
    with (
        transfer_guard("forbid"),
        pytest.raises(TransferError, match="forbids; copy outside the block"),
    ):
        c.copy_(x)
    assert c.tolist() == [0, 0, 0, 0]
    with transfer_guard("allow", device_to_host="forbid"):
        c.to(GPU)
        with pytest.raises(TransferError):
            x.cpu()
    x.tolist()


ENGINES = ["of virtual GPUs", *["of real GPUs"] * IS_COMPILED]


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    """The autograd engine: the one that virtual GPUs have, and PyTorch's, with a thread for each device."""
    if request.param == "of real GPUs":
        own = torch._C._ImperativeEngine()
        monkeypatch.setattr(torch.autograd.Variable, "_execution_engine", own)


@pytest.mark.usefixtures("engine")
def test_a_guard_holds_for_the_gradients_of_its_thread_and_the_error_arrives_there():
    def crossing():
        w = torch.ones(4, device=GPU, requires_grad=True)
        return w, w.to(GPU + ":1").sum()

    w, loss = crossing()
    with transfer_guard("forbid"), pytest.raises(TransferError, match="in the backward pass"):
        loss.backward()
    assert w.grad is None
    w, loss = crossing()
    loss.backward()
    assert w.grad is not None


@pytest.mark.usefixtures("engine")
def test_threads_have_levels_of_their_own():
    results = {}

    def train(level):
        for _ in range(20):
            w = torch.ones(4, device=GPU, requires_grad=True)
            loss = w.to(GPU + ":1").sum()
            try:
                with transfer_guard(level):
                    loss.backward()
                results.setdefault(level, set()).add("done")
            except TransferError:
                results.setdefault(level, set()).add("refused")

    levels = "allow", "forbid"
    threads = [threading.Thread(target=train, args=(level,)) for level in levels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"allow": {"done"}, "forbid": {"refused"}}


def test_compiled_code_copies_at_a_line_of_the_program():
    @torch.compile(backend="eager")
    def f(x):
        return x * 2 if x.sum() > 0 else x

    x = torch.ones(4, device=GPU)
    f(x)
    with watch_transfers() as report:
        f(x)
    assert [each[:2] for each in seen(report)] == [("number", TO_HOST)]
    assert report.findings[0].file == __file__


def network():
    torch.manual_seed(0)
    convolutions = (
        nn.Conv2d(1, 6, 5, padding=2),
        nn.Sigmoid(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.AvgPool2d(2),
    )
    return nn.Sequential(
        *convolutions, nn.Flatten(), nn.Linear(400, 84), nn.Sigmoid(), nn.Linear(84, 10)
    ).to(GPU)


def trained(steps=3):
    """The weights of a LeNet after some steps, and what it printed."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(8, 1, 28, 28), torch.randint(0, 10, (8,))
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(images.to(GPU)), labels.to(GPU))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.cpu() for parameter in model.parameters()]


def test_watching_changes_no_number_and_counts_steps():
    losses, weights = trained()
    with watch_transfers() as report, transfer_guard("log"):
        watched_losses, watched_weights = trained()
    assert losses == watched_losses
    assert all(map(torch.equal, weights, watched_weights))
    assert report.steps == 3
    by_line = {found.source: found for found in report.findings}
    assert by_line["losses.append(loss.item())"].per_step == 1
    assert by_line["losses.append(loss.item())"].copies == 3


def test_nothing_is_left_when_no_block_is_open():
    trained(1)  # which proves the engine
    engine, hooks = (
        torch.autograd.Variable._execution_engine,
        len(optimizers._global_optimizer_post_hooks),
    )
    with watch_transfers() as outer:
        with watch_transfers() as inner:
            torch.ones(2).to(GPU)
        torch.ones(2).to(GPU)
    torch.ones(2).to(GPU)
    assert (inner.copies, outer.copies) == (1, 2)
    assert torch.autograd.Variable._execution_engine is engine
    assert len(optimizers._global_optimizer_post_hooks) == hooks
    assert (
        not torch._C._is_key_in_tls("xdevice.transfers")
        or torch._C._get_obj_in_tls("xdevice.transfers") is None
    )


def test_what_a_function_holds_goes_when_it_returns():
    class Held:
        pass

    def train():
        held = Held()
        torch.ones(4, device=GPU, requires_grad=True).to(GPU + ":1").sum().backward()
        return weakref.ref(held)

    gc.disable()
    try:
        with watch_transfers(), transfer_guard("log"):
            assert train()() is None
    finally:
        gc.enable()


def test_a_wrapper_that_others_put_around_the_engine_stays():
    class Other:
        def __init__(self, engine):
            self.engine, self.calls = engine, 0

        def run_backward(self, *args, **kwargs):
            self.calls += 1
            return self.engine.run_backward(*args, **kwargs)

    before = torch.autograd.Variable._execution_engine
    with watch_transfers():
        torch.autograd.Variable._execution_engine = other = Other(
            torch.autograd.Variable._execution_engine
        )
    try:
        torch.ones(2, device=GPU, requires_grad=True).sum().backward()
        assert torch.autograd.Variable._execution_engine is other
        assert other.calls == 1
    finally:
        torch.autograd.Variable._execution_engine = before


def test_modes_and_subclasses_of_the_program_see_nothing_of_it():
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            called.append(func)
            return func(*args, **(kwargs or {}))

    called, x = [], torch.ones(2).pin_memory()
    for watching in (False, True):
        with (
            Mode(),
            watch_transfers()
            if watching
            else contextvars.copy_context().run(transfer_guard, "allow"),
        ):
            x.to(GPU)
    assert len(called) == 2


@pytest.mark.parametrize("width", [2, 64])
@pytest.mark.skipif(not STANDS_IN, reason="DataParallel takes a GPU of PyTorch's own name")
def test_the_copies_of_data_parallel_have_advice_of_their_own(width):
    layers = [nn.Linear(width, width) for _ in range(4)]
    model = nn.DataParallel(nn.Sequential(*layers).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.rand(8, width, device="cuda")
    with watch_transfers() as report:
        for _ in range(4):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert len(report.findings) >= 3
    assert {found.rule for found in report.findings} == {"replicated-each-step"}
    assert "DistributedDataParallel" in report.findings[0].advice


def test_a_copy_to_the_host_that_does_not_block_has_its_values_all_the_same():
    x = torch.ones(3, device=GPU)
    moved = xdevice.to_device({"x": x}, "cpu", non_blocking=True)
    assert moved["x"].tolist() == xdevice.to_device(x, "cpu", non_blocking=True).tolist()
    assert moved["x"].tolist() == [1, 1, 1]
