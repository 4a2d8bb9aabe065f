"""What is seen of copies on two virtual GPUs: on those that stand in, and weekly on the others, too."""

import threading

import numpy as np
import pytest

import xdevice
from xdevice import TransferError, strict, transfer_guard, watch_transfers

mx = xdevice.backend("mxnet").framework
autograd, gluon = mx.autograd, mx.gluon
GPU, OTHER = (xdevice.native(f"gpu:{i}") for i in range(2))
STANDS_IN = GPU.device_type == "gpu"
TO_HOST, TO_GPU, ACROSS = "gpu:0>host", "host>gpu:0", "gpu:0>gpu:1"
REPLACED = {
    mx.base._LIB: [
        "MXNDArraySyncCopyToCPU",
        "MXImperativeInvokeEx",
        "MXNetFuncCall",
        "MXAutogradBackwardEx",
    ],
    gluon.Trainer: ["_update"],
    mx.nd.NDArray: ["__getitem__"],
}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MXNet's own


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("mxnet"):
        yield


def seen(report):
    """What was copied: kind, route, number and bytes."""
    return [
        (found.kind, f"{found.from_}>{found.to}", found.copies, found.nbytes)
        for found in report.findings
    ]


def copied(line, tmp_path, arrays):
    """What a line copies, where there are x = [0, 1, 2, 3] on a GPU, y on another, and c on the CPU."""
    names = {
        **globals(),
        "x": arrays.arange(4, ctx=GPU, dtype="float32"),
        "y": arrays.ones(4, ctx=OTHER),
        "c": arrays.ones(4, ctx=mx.cpu()),
        "many": arrays.array([0, 2], ctx=GPU, dtype="int32"),
    }
    file = tmp_path / "line.py"
    file.write_text(line)
    with (
        mx.util.np_shape(arrays is mx.np),
        mx.util.np_array(arrays is mx.np),
        watch_transfers() as report,
    ):
        exec(compile(line, file, "exec"), names)
    return seen(report)


COPIES = {
    "mx.nd.array([1, 2, 3], ctx=GPU)": ("copy", TO_GPU, 1, 12),
    "mx.np.array(np.ones((2, 2)), ctx=GPU)": ("copy", TO_GPU, 1, 32),
    "c.as_in_context(GPU)": ("copy", TO_GPU, 1, 16),
    "c.copyto(x)": ("copy", TO_GPU, 1, 16),
    "x.copyto(OTHER)": ("copy", ACROSS, 1, 16),
    "x.as_in_context(mx.cpu())": ("copy", TO_HOST, 1, 16),
    "x.asnumpy()": ("copy", TO_HOST, 1, 16),
    "xdevice.to_numpy(x)": ("copy", TO_HOST, 1, 16),
    "xdevice.to_device(x, 'gpu:1')": ("copy", ACROSS, 1, 16),
    "xdevice.tensor([1.0, 2.0], device='gpu:0')": ("copy", TO_GPU, 1, 8),
    "__import__('pickle').dumps(x)": ("copy", TO_HOST, 1, 16),
    "mx.nd.waitall(); x.sum().asnumpy()": ("copy", TO_HOST, 1, 4),
    "x[0:2].asnumpy().tolist()": ("copy", TO_HOST, 1, 8),
    "if x.sum(): pass": ("number", TO_HOST, 1, 4),
    "print(x)": ("print", TO_HOST, 1, 16),
    "f'{x[0:2]}'": ("print", TO_HOST, 1, 8),
    "x[0:2] = [5.0, 6.0]": ("index", TO_GPU, 1, 8),
    "x[:] = np.zeros(4)": ("index", TO_GPU, 1, 16),
    "x[1:3] = c[1:3]": ("index", TO_GPU, 1, 8),
    "x + y": ("operand", "gpu:1>gpu:0", 1, 16),
}
NOT = """
    x + x * 2 - 1
    x[0] = 3.0
    x[:] = 3.0
    x[:] = x + 1
    x[many]
    x[1], x[1:3]
    x.copy()
    x.copyto(GPU)
    x.as_in_context(GPU)
    mx.nd.zeros((3,), ctx=GPU)
    mx.nd.random.uniform(shape=(3,), ctx=GPU)
    c.asnumpy(), bool(c.sum()), str(c), c[[0, 1]]
    len(x), x.shape, x.context, x.dtype
    mx.nd.waitall()
"""


@pytest.mark.parametrize("arrays", [mx.nd, mx.np], ids=["nd", "np"])
@pytest.mark.parametrize("line", COPIES)
def test_a_line_that_copies_is_seen(line, arrays, tmp_path):
    assert copied(line, tmp_path, arrays) == [COPIES[line]]


@pytest.mark.parametrize("arrays", [mx.nd, mx.np], ids=["nd", "np"])
@pytest.mark.parametrize("line", NOT.strip().splitlines())
def test_a_line_that_does_not_copy_is_not_seen(line, arrays, tmp_path):
    assert copied(line.strip(), tmp_path, arrays) == []


def test_masks_and_what_is_found_wait_for_a_size(tmp_path):
    for line in ("x[x > 1]", "x[x > 1] = 0", "mx.np.nonzero(x)", "mx.np.unique(x)"):
        assert copied(line, tmp_path, mx.np) == [("size", TO_HOST, 1, 4)]
    assert copied("mx.np.where(x > 1, x, 0)", tmp_path, mx.np) == []


def test_an_index_from_the_host_is_sent(tmp_path):
    for line in ("x[[0, 2]]", "x[np.array([0, 2])]", "x[[0, 2]] = 1.0"):
        ((kind, route, _, _),) = copied(line, tmp_path, mx.nd)
        assert (kind, route) == ("index", TO_GPU)


def test_a_number_that_is_read_makes_python_wait(tmp_path):
    assert copied("x.sum().asscalar()", tmp_path, mx.nd) == [("number", TO_HOST, 1, 4)]
    for line in ("x.sum().item()", "float(x.sum())", "int(x[2])", "x[0:1].tolist()"):
        assert copied(line, tmp_path, mx.np) == [("number", TO_HOST, 1, 4)]


@pytest.mark.skipif(not STANDS_IN, reason="MXNet's CPU contexts may be mixed")
def test_an_operand_that_mxnet_refuses_is_not_said_to_be_copied():
    x, c = mx.nd.ones(4, ctx=GPU), mx.nd.ones(4)
    with watch_transfers() as report, pytest.raises(mx.MXNetError, match="on the same context"):
        _ = x + c
    assert seen(report) == []


def test_a_copy_in_backward_is_the_line_that_calls_backward():
    x, c = mx.nd.ones(4, ctx=GPU), mx.nd.ones(4)
    x.attach_grad()
    with watch_transfers() as report:
        with autograd.record():
            y = x.copyto(OTHER) * c.copyto(OTHER)  # c has no gradient
        y.backward()
    gradients = [found for found in report.findings if found.kind == "gradient"]
    assert [(found.source, found.copies, found.nbytes) for found in gradients] == [
        ("y.backward()", 1, 16)
    ]
    assert (gradients[0].from_, gradients[0].to) == ("gpu:1", "gpu:0")
    with watch_transfers() as report:
        with autograd.record():
            y = x * 2
        y.backward()
    assert seen(report) == []


def test_guards_refuse_what_they_are_told_to_and_the_copy_is_not_made():
    x, c = mx.np.ones(4, ctx=GPU), mx.np.zeros(4)
    for read in (
        lambda: x.item(0),
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
        x.asnumpy(), c.as_in_ctx(GPU), x + 1
    with (
        transfer_guard("forbid"),
        pytest.raises(TransferError, match="forbids; copy outside the block"),
    ):
        x.copyto(c)
    assert c.tolist() == [0, 0, 0, 0]
    with transfer_guard("allow", device_to_host="forbid"):
        c.as_in_ctx(GPU)
        with pytest.raises(TransferError):
            x.asnumpy()


def test_a_forbidden_gradient_leaves_the_graph():
    x = mx.nd.ones(4, ctx=GPU)
    x.attach_grad()
    with autograd.record():
        y = x.copyto(OTHER) * 2
    with transfer_guard("forbid"):
        y.backward()  # it was recorded where nothing was watched: not seen, as the page says
    with transfer_guard("forbid_implicit"):
        with autograd.record():
            y = x.copyto(OTHER) * 3
        with pytest.raises(TransferError, match="in the backward pass"):
            y.backward()
    y.backward()
    assert x.grad.asnumpy().tolist() == [3, 3, 3, 3]


def test_threads_have_levels_of_their_own():
    x, results = mx.nd.ones(4, ctx=GPU), {}

    def read(level):
        for _ in range(50):
            try:
                with transfer_guard(level):
                    x.asnumpy()
                results.setdefault(level, set()).add("read")
            except TransferError:
                results.setdefault(level, set()).add("refused")

    threads = [threading.Thread(target=read, args=(level,)) for level in ("allow", "forbid")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"allow": {"read"}, "forbid": {"refused"}}


def trained(steps=3):
    """The weights of a LeNet after some steps, and what it printed."""
    mx.random.seed(0)
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(6, 5, padding=2, activation="sigmoid"),
        gluon.nn.AvgPool2D(),
        gluon.nn.Dense(10),
    )
    net.initialize(mx.init.Constant(0.01), ctx=GPU)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    rng = np.random.RandomState(0)
    images, labels = mx.nd.array(rng.rand(8, 1, 28, 28)), mx.nd.array(rng.randint(0, 10, 8))
    loss_of, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
    for _ in range(steps):
        with autograd.record():
            loss = loss_of(net(images.as_in_context(GPU)), labels.as_in_context(GPU)).mean()
        loss.backward()
        trainer.step(8)
        losses.append(loss.asscalar())
    return losses, [parameter.data().asnumpy() for parameter in net.collect_params().values()]


def test_watching_changes_no_number_and_counts_steps():
    losses, weights = trained()
    with watch_transfers() as report, transfer_guard("log"):
        watched_losses, watched_weights = trained()
    assert losses == watched_losses
    assert all(map(np.array_equal, weights, watched_weights))
    assert report.steps == 3
    by_line = {found.source: found for found in report.findings}
    assert (
        by_line["losses.append(loss.asscalar())"].per_step,
        by_line["losses.append(loss.asscalar())"].copies,
    ) == (
        1,
        3,
    )


def replaced():
    return [vars(holder).get(name) for holder, names in REPLACED.items() for name in names]


def test_nothing_is_left_when_no_block_is_open():
    x, before = mx.nd.ones(4, ctx=GPU), replaced()
    with watch_transfers() as outer:
        with strict():
            during = replaced()
            x.asnumpy()
        with watch_transfers() as inner:
            x.asnumpy()
        x.asnumpy()
    x.asnumpy()
    assert (inner.copies, outer.copies) == (1, 3)
    assert replaced() == before
    assert not any(a is b for a, b in zip(before, during, strict=True))


def test_blocks_that_end_in_another_order_leave_nothing_either():
    before, first, second = replaced(), watch_transfers(), strict()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert replaced() == before


def test_a_wrapper_that_others_put_around_a_function_stays():
    library, calls = mx.base._LIB, []
    before = library.MXNDArraySyncCopyToCPU
    with watch_transfers():
        inner = library.MXNDArraySyncCopyToCPU
        library.MXNDArraySyncCopyToCPU = other = lambda *args: calls.append(1) or inner(*args)
    try:
        mx.nd.ones(2, ctx=GPU).asnumpy()
        assert library.MXNDArraySyncCopyToCPU is other
        assert calls == [1]
        with watch_transfers() as report:
            mx.nd.ones(2, ctx=GPU).asnumpy()
        assert report.copies == 1
    finally:
        library.MXNDArraySyncCopyToCPU = before
