"""What only MXNet does."""

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import xdevice
from xdevice import Device, cpu, device_of, to_device

mx = xdevice.backend("mxnet").framework
autograd, gluon = mx.autograd, mx.gluon

OTHER = mx.cpu(
    1
)  # as good as a second device: memory of its own, and arrays know that they are there
NUMPY = tuple(map(int, np.__version__.split(".")[:2]))


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("mxnet"):
        yield
    assert not mx.util.is_np_shape(), "NumPy's shapes are the user's choice"


def python(code):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=100
    )


# ---------------------------------------------------------------- importing

LOOK_UPS = """
import sys
import numpy as np
asked, rest = set(), np.__getattr__
def look_up(name):
    try:
        return rest(name)
    except AttributeError:
        if name.startswith("__") or sys._getframe(1).f_globals["__name__"].partition(".")[0] != "mxnet":
            raise
        asked.add(name)
        return bool if name == "bool" else lambda *args: None
np.__getattr__ = look_up
import mxnet
print(*sorted(asked))
"""


def test_the_lent_names_are_still_needed():
    done = python("import mxnet")
    assert (done.returncode != 0) == (NUMPY >= (1, 24)), (
        "mend backends/mxnet/__init__.py\n" + done.stderr
    )


def test_only_the_missing_names_are_lent():
    from xdevice.backends.mxnet import _with_removed_names

    done = python(LOOK_UPS)
    assert done.returncode == 0, done.stderr
    with _with_removed_names() as lent:
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that NumPy answers with a warning is lent too
        assert sorted(name for name in lent if not hasattr(np, name)) == done.stdout.split()


def test_numpy_is_restored_after_the_import():
    done = python(
        "import numpy as np, types, xdevice; before = set(vars(np)); xdevice.backend('mxnet').framework\n"
        "changed = {n for n in set(vars(np)) ^ before if not isinstance(vars(np).get(n), types.ModuleType)}\n"
        "assert not changed, changed\n"
        "import mxnet; assert mxnet.np.ones(3).asnumpy().sum() == 3"
    )
    assert done.returncode == 0, done.stderr


def test_numpy_is_what_it_was_when_the_import_fails():
    from xdevice.backends.mxnet import _with_removed_names

    before = set(vars(np))
    with pytest.raises(ZeroDivisionError), _with_removed_names():
        raise ZeroDivisionError
    assert set(vars(np)) == before


def test_a_name_set_by_others_is_theirs():
    from xdevice.backends.mxnet import _with_removed_names

    with _with_removed_names() as lent:
        np.rate = theirs = object()
    try:
        assert "rate" in lent
        assert np.rate is theirs
    finally:
        del np.rate


def test_later_needs_of_old_numpy_stay_missing():
    def pad():
        return mx.np.pad(mx.np.ones((2, 2)), ((1, 1), (1, 1)))

    if NUMPY >= (2, 0):
        with pytest.raises(AttributeError):
            pad()
    else:
        pad()


TWO, THREE = np.int64(2), np.int64(3)


@pytest.mark.parametrize(
    "use",
    [
        lambda: mx.nd.random.uniform(shape=(2, THREE)),
        lambda: mx.nd.zeros((2, THREE)),
        lambda: mx.np.ones((TWO, THREE)),
        lambda: mx.np.random.uniform(size=(TWO, THREE)),
        lambda: mx.nd.slice(mx.nd.ones((4, 3)), begin=(TWO, None), end=(np.int64(4), None)),
        lambda: mx.np.transpose(mx.np.ones((3, 2)), tuple(np.array([1, 0]))),
        lambda: mx.nd.concat(
            *gluon.utils.split_and_load(mx.nd.ones((TWO, THREE)), [mx.cpu(0)]), dim=0
        ),
        lambda: mx.sym.zeros((TWO, THREE)).eval()[0],
        lambda: mx.sym.var("x", shape=(TWO, THREE)).simple_bind(mx.cpu()).forward()[0],
    ],
)
def test_numpys_integers_are_integers(use):
    assert use().shape == (2, 3)


@pytest.mark.parametrize("hybrid", [False, True])
def test_layers_take_numpys_numbers(hybrid):
    made = gluon.nn.HybridSequential()
    made.add(
        gluon.nn.Conv2D(TWO, (THREE, THREE), in_channels=np.int64(1)),
        gluon.nn.Dense(THREE, in_units=np.int64(18)),
    )
    made.initialize()
    if hybrid:
        made.hybridize()
    assert made(mx.nd.ones((2, 1, 5, 5))).shape == (2, 3)


def test_numpy_prints_its_own_numbers_as_before():
    assert str((np.int64(2),)) == ("(np.int64(2),)" if NUMPY >= (2, 0) else "(2,)")
    with pytest.raises(TypeError, match=r"type <class 'str'> not supported"):
        mx.nd.ones(2) + "np.int64(2)"


# ---------------------------------------------------------------- placement


def test_host_contexts_are_told_apart():
    assert xdevice.count("cpu") == 1
    assert device_of(mx.np.ones(3, ctx=OTHER)) == Device("cpu", 1)
    assert device_of(mx.np.ones(3, ctx=mx.cpu_pinned())) == Device("cpu_pinned", 0)
    assert xdevice.as_device(mx.Context("cpu_shared", 2)) == Device("cpu_shared", 2)
    assert not xdevice.is_same_device(mx.np.ones(3), mx.np.ones(3, ctx=OTHER))
    with pytest.raises(xdevice.MixedDeviceError, match=r"on cpu:0: \['a'\]; on cpu:1: \['b'\]"):
        device_of({"a": mx.np.ones(3), "b": mx.np.ones(3, ctx=OTHER)})


@pytest.mark.parametrize("make", [mx.np.ones, mx.nd.ones], ids=["np", "nd"])
def test_an_array_moves_and_keeps_its_class(make):
    x = make((2, 3), ctx=OTHER)
    y = to_device(x, "cpu")
    assert type(y) is type(x)
    assert (x.ctx, y.ctx) == (OTHER, mx.cpu(0))
    y += 1
    assert x.asnumpy().tolist() == [[1, 1, 1]] * 2
    assert to_device([x, y], "cpu")[1] is y


def test_sparse_arrays_move_and_stay_sparse():
    x = mx.nd.ones((3, 3)).tostype("csr").copyto(OTHER)
    y = to_device(x, "cpu")
    assert (type(y), device_of(x), device_of(y)) == (type(x), Device("cpu", 1), cpu())
    assert xdevice.to_numpy(y).tolist() == [[1, 1, 1]] * 3


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
@pytest.mark.parametrize("forced", [None, True])
def test_scalars_and_empty_arrays_move(shape, forced):
    with mx.util.np_shape(True):
        x = mx.np.ones(shape, ctx=OTHER)
    assert to_device(x, "cpu", copy=forced).shape == shape


@pytest.mark.parametrize("start", [mx.cpu(0), OTHER])
@pytest.mark.parametrize("forced", [None, True])
def test_gradients_flow_from_one_context_to_another(start, forced):
    x = mx.np.ones(3, ctx=start)
    x.attach_grad()
    with autograd.record():
        y = (2 * to_device(x, "cpu", copy=forced)).sum()
    y.backward()
    assert x.grad.asnumpy().tolist() == [2, 2, 2]
    assert x.grad.ctx == start


def test_a_symbol_says_what_it_is():
    with pytest.raises(xdevice.UnknownPlacementError, match="symbol 'x' is a node of a graph"):
        device_of(mx.sym.var("x"))


# ---------------------------------------------------------------- parameters and models


def parameter(*contexts, **options):
    made = gluon.Parameter("weight", shape=(2, 3), **options)
    made.initialize(ctx=list(contexts))
    return made


def net(ctx=OTHER, hybrid=False):
    made = (gluon.nn.HybridSequential if hybrid else gluon.nn.Sequential)()
    made.add(gluon.nn.Dense(2, in_units=3), gluon.nn.BatchNorm(in_channels=2))
    made.initialize(ctx=ctx)
    if hybrid:
        made.hybridize()
    return made


def test_a_parameter_without_values_is_nowhere():
    with pytest.raises(xdevice.UnknownPlacementError, match="initialize"):
        device_of(gluon.Parameter("weight", shape=(2, 3)))
    with pytest.raises(xdevice.UnknownPlacementError, match="initialize"):
        xdevice.to_numpy(gluon.Parameter("weight", shape=(2, 3)))


def test_a_deferred_parameter_has_its_place():
    dense = gluon.nn.Dense(2)
    dense.initialize(ctx=OTHER)
    assert device_of(dense.weight) == device_of(dense) == Device("cpu", 1)
    with pytest.raises(xdevice.UnknownPlacementError, match="one batch"):
        xdevice.to_numpy(dense.weight)
    assert to_device(dense, "cpu") is dense
    assert device_of(dense) == cpu()
    assert dense(mx.nd.ones((4, 3))).ctx == mx.cpu(0)


def test_a_parameter_on_several_is_mixed():
    spread = parameter(mx.cpu(0), OTHER)
    with pytest.raises(xdevice.MixedDeviceError, match="cpu:0, cpu:1"):
        device_of(spread)
    assert xdevice.devices_of(spread) == {cpu(), Device("cpu", 1)}
    assert to_device(spread, "cpu") is spread
    assert device_of(spread) == cpu()


@pytest.mark.parametrize("grad_req", ["write", "add", "null"])
def test_a_parameters_copy_has_its_own_gradient(grad_req):
    first = parameter(OTHER, grad_req=grad_req)
    second = to_device(first, "cpu", copy=True)
    assert (device_of(first), device_of(second), second.grad_req) == (
        Device("cpu", 1),
        cpu(),
        grad_req,
    )
    assert to_device(first, "cpu") is first
    assert device_of(first) == cpu()
    assert np.array_equal(xdevice.to_numpy(first), xdevice.to_numpy(second))
    if grad_req != "null":
        with autograd.record():
            loss = (2 * second.data()).sum()
        loss.backward()
        assert second.grad().asnumpy().tolist() == [[2, 2, 2]] * 2
        assert first.grad().asnumpy().tolist() == [[0, 0, 0]] * 2


def test_a_copied_parameter_has_no_trainer():
    first = parameter(mx.cpu(0))
    trainer = gluon.Trainer({"weight": first}, "sgd")
    second = to_device(first, "cpu", copy=True)
    assert vars(first)["_trainer"] is trainer
    assert vars(second)["_trainer"] is None


def test_a_moved_model_needs_a_new_trainer():
    model = net()
    earlier = gluon.Trainer(model.collect_params(), "sgd")
    assert device_of(model) == device_of(model.collect_params()) == Device("cpu", 1)
    assert to_device({"net": model}, "cpu")["net"] is model
    assert device_of(model) == cpu()
    before = xdevice.to_numpy(model[0].weight)
    with autograd.record():
        loss = (model(mx.nd.arange(12).reshape((4, 3))) * mx.nd.arange(8).reshape((4, 2))).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="not initialized on context"):
        earlier.step(1)
    gluon.Trainer(model.collect_params(), "sgd").step(1)
    assert not np.array_equal(before, xdevice.to_numpy(model[0].weight))


@pytest.mark.parametrize("grad_req", ["write", "add", "null"])
@pytest.mark.parametrize("hybrid", [False, True])
def test_a_model_keeps_its_gradients_when_it_moves(grad_req, hybrid):
    model = net(mx.cpu(1), hybrid)
    model[0].collect_params().setattr("grad_req", grad_req)
    with autograd.record():
        loss = (model(mx.nd.ones((4, 3), mx.cpu(1))) * 2).sum()
    loss.backward()
    with_gradient = [p for p in model.collect_params().values() if p.grad_req != "null"]
    before = [p.grad().asnumpy() for p in with_gradient]
    to_device(model, "cpu")
    after = [p.grad() for p in with_gradient]
    assert all(gradient.ctx == mx.cpu(0) for gradient in after)
    assert [g.asnumpy().tolist() for g in after] == [g.tolist() for g in before]
    assert any(gradient.any() for gradient in before)


def test_gathered_parameters_sum_gradients():
    parameter = gluon.Parameter("w", shape=(2,))
    parameter.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    with autograd.record():
        losses = [(i + 1) * parameter.data(mx.cpu(i)).sum() for i in range(2)]
    autograd.backward(losses)
    assert to_device(parameter, "cpu").grad().asnumpy().tolist() == [3, 3]


@pytest.mark.filterwarnings(
    "ignore:Please import:DeprecationWarning"
)  # MXNet uses an old name of SciPy's
def test_a_sparse_gradient_moves_along():
    layer = gluon.nn.Embedding(4, 2, sparse_grad=True)
    layer.initialize(ctx=mx.cpu(1))
    with autograd.record():
        layer(mx.nd.array([1, 2], mx.cpu(1))).sum().backward()
    before = layer.weight.grad().asnumpy()
    to_device(layer, "cpu")
    after = layer.weight.list_grad()[0]
    assert (after.stype, after.ctx, before.any()) == ("row_sparse", mx.cpu(0), True)
    assert np.array_equal(after.asnumpy(), before)


def test_the_parameters_of_a_model_move_together():
    parameters = net().collect_params()
    assert to_device(parameters, "cpu") is parameters
    assert device_of(parameters) == cpu()


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_copied_model_learns_alone(hybrid):
    model, batch = net(mx.cpu(0), hybrid), mx.nd.arange(12).reshape((4, 3))
    gluon.Trainer(model.collect_params(), "sgd")
    expected = model(batch).asnumpy()
    copied = to_device(model, "cpu", copy=True)
    assert np.array_equal(copied(batch).asnumpy(), expected)
    trainer = gluon.Trainer(copied.collect_params(), "sgd", {"learning_rate": 1.0})
    with autograd.record():
        loss = (copied(batch) * mx.nd.arange(8).reshape((4, 2))).sum()
    loss.backward()
    trainer.step(1)
    assert not np.array_equal(copied(batch).asnumpy(), expected)
    assert np.array_equal(model(batch).asnumpy(), expected)


# ---------------------------------------------------------------- scopes and waiting


def test_a_scope_restores_the_context():
    scope = xdevice.scope("cpu")
    with OTHER:
        with scope, scope, cpu():
            assert mx.np.ones(3).ctx == mx.cpu(0)
        assert mx.np.ones(3).ctx == xdevice.ones(3).ctx == OTHER
    assert mx.current_context() == mx.cpu(0)


def test_entering_a_context_twice_still_leaks():
    seen = []

    def work():
        context = mx.cpu(1)
        with context, context:
            pass
        seen.append(mx.current_context())

    thread = threading.Thread(target=work)  # the leak stays in the thread
    thread.start()
    thread.join()
    assert seen == [mx.cpu(1)], "mended in MXNet: scope() may keep its contexts"


def test_waiting_raises_queued_errors():
    mx.nd.random.normal(0, -1, shape=(2,))  # no word yet
    with pytest.raises(mx.MXNetError, match="scale parameter"):
        xdevice.synchronize()
    xdevice.synchronize()


def test_no_gpu_is_counted_without_a_word(capfd):
    assert xdevice.count("gpu") == mx.context.num_gpus()
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- creation and exchange


@pytest.mark.parametrize("numpy_semantics", [False, True])
def test_creation_with_and_without_np_shape(numpy_semantics):
    seen = []

    def work():  # npx.set_np belongs to the thread
        mx.npx.set_np(shape=numpy_semantics, array=numpy_semantics)
        with xdevice.using("mxnet"):
            made = [
                xdevice.zeros(()),
                xdevice.rand((3, 0)),
                xdevice.tensor(2.5),
                xdevice.full((0,), 1),
            ]
        seen.extend((type(x), x.shape) for x in made)
        seen.append(mx.util.is_np_shape())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(mx.np.ndarray, shape) for shape in ((), (3, 0), (), (0,))] + [numpy_semantics]


def test_whole_numbers_stay_whole():
    assert mx.np.array([1, 2]).dtype == mx.np.full((2,), 1).dtype == np.float32, (
        "MXNet keeps them: mend creation.py"
    )
    for made in (xdevice.tensor([1, 2]), xdevice.full((2,), 1), xdevice.arange(2)):
        assert made.dtype == np.int64
    assert xdevice.full((2,), True).dtype == np.bool_
    assert xdevice.tensor([0.5]).dtype == xdevice.arange(0.5, 2).dtype == np.float32


def test_large_integers_are_exact():
    large = 2**60 + 1
    assert int(mx.np.full((1,), large, dtype="int64")[0]) != large, (
        "MXNet is exact: _EXACT is no longer needed"
    )
    assert xdevice.to_numpy(xdevice.full((1,), large)).tolist() == [large]
    assert xdevice.to_numpy(xdevice.full((1,), -large)).tolist() == [-large]
    assert xdevice.to_numpy(xdevice.arange(large, large + 2)).tolist() == [large, large + 1]


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "int16", "complex64"])
def test_a_missing_dtype_is_an_error(dtype):
    with pytest.raises(xdevice.ArgumentError):
        xdevice.tensor(np.ones(2, dtype))
    with pytest.raises(xdevice.ArgumentError):
        xdevice.ones(2, dtype=dtype)


@pytest.mark.parametrize("make", [xdevice.rand, xdevice.randn])
def test_random_numbers_are_floats(make):
    assert make(3, dtype="float64").dtype == np.float64
    with pytest.raises(xdevice.ArgumentError, match="are floats, not int32"):
        make(3, dtype="int32")


def test_a_uniform_number_is_less_than_one():
    mx.random.seed(1)
    assert mx.np.random.uniform(size=(10**5,), dtype="float16").asnumpy().max() == 1, (
        "mended: minimum() may go"
    )
    xdevice.seed(1)
    assert xdevice.to_numpy(xdevice.rand(10**5, dtype="float16")).max() < 1


def test_a_tensor_of_a_recorded_array():
    x = mx.np.ones(3)
    x.attach_grad()
    with autograd.record():
        y = (x * xdevice.tensor(x)).sum()
    y.backward()
    assert x.grad.asnumpy().tolist() == [1, 1, 1]


def test_bfloat16_is_no_dtype_of_numpys():
    x = mx.nd.ones(2).astype(np.dtype([("bfloat16", np.uint16)]))
    with pytest.raises(xdevice.NotSupportedError, match="bfloat16"):
        xdevice.to_numpy(x)


def test_a_failed_allocation_is_out_of_memory():
    done = python(
        "import resource, xdevice; xdevice.use('mxnet'); xdevice.synchronize()\n"
        "used = 4096 * int(open('/proc/self/statm').read().split()[0])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 2**30,) * 2)\n"
        "try: xdevice.ones(2**30), xdevice.synchronize()\n"
        "except Exception as error: print(type(error).__name__, xdevice.is_out_of_memory(error))"
    )
    assert done.stdout == "MXNetError True\n", done.stderr


def test_gradients_of_outer_arrays_stay():
    scale = mx.np.array([3.0, 4.0])
    scale.attach_grad()
    scale.grad[:] = 5
    unused = mx.np.ones((2, 2))
    value, (gradient, zeros) = xdevice.value_and_grad(lambda ws: (ws[0] * scale).sum())(
        [mx.np.ones(2), unused]
    )
    assert value.item() == 7
    assert gradient.tolist() == [3, 4]
    assert zeros.tolist() == [[0, 0], [0, 0]]
    assert scale.grad.tolist() == [5, 5]


@pytest.mark.parametrize("gpus", [0, 1])
def test_step_threads_have_the_callers_modes(gpus, monkeypatch):
    from xdevice.backends.mxnet import collectives

    monkeypatch.setattr(collectives, "gpus", lambda: gpus)  # with a GPU each part has a thread

    def loss(w, x):
        return (w * x).sum(), (mx.util.is_np_array(), autograd.is_training())

    step = xdevice.data_parallel(loss, ["cpu", "cpu"], has_aux=True)
    w, x = xdevice.ones(1), xdevice.ones(4, 1)
    assert step(w, x)[0][1] == [(False, True)] * 2
    with mx.util.np_shape(True), mx.util.np_array(True):
        assert step(w, x)[0][1] == [(True, True)] * 2
    with autograd.record(train_mode=False):
        assert step(w, x)[0][1] == [(False, False)] * 2


@pytest.mark.parametrize(
    "draw", [lambda x: mx.npx.dropout(x, p=0.5), lambda x: x * mx.np.random.uniform(size=x.shape)]
)
def test_a_step_on_several_cpus_can_be_seeded(draw):
    step = xdevice.data_parallel(lambda w, x: (draw(w * x) ** 2).mean(), ["cpu"] * 3)
    w, x = xdevice.ones(1), xdevice.ones(300, 1)
    found = set()
    for _ in range(8):
        xdevice.seed(5)
        found.add(float(step(w, x)[0]))
    assert len(found) == 1


@pytest.mark.filterwarnings(
    "ignore:Please import:DeprecationWarning"
)  # MXNet imports SciPy by old names
def test_sparse_arrays_are_split_or_refused_by_name(tmp_path):
    dense = mx.nd.array([[1.0, 0.0], [0.0, 2.0]])
    csr, rows = dense.tostype("csr"), dense.tostype("row_sparse")
    assert [part.asnumpy().tolist() for part in xdevice.split_batch(csr, ["cpu", "cpu"])] == [
        [[1, 0]],
        [[0, 2]],
    ]
    with pytest.raises(xdevice.NotSupportedError, match="mxnet cannot split a row_sparse array"):
        xdevice.split_batch(rows, ["cpu", "cpu"])
    for x in (csr, rows):
        for ask in (
            lambda x=x: xdevice.all_reduce([x, x]),
            lambda x=x: xdevice.save({"x": x}, tmp_path / "file"),
            lambda x=x: xdevice.tensor([x]),  # MXNet never ends
        ):
            with pytest.raises(xdevice.ArgumentTypeError, match=f"a {x.stype} array"):
                ask()
        assert xdevice.tensor(x).asnumpy().tolist() == dense.asnumpy().tolist()


@pytest.mark.filterwarnings(
    "ignore:Please import:DeprecationWarning"
)  # MXNet imports SciPy by old names
def test_sparse_gradients_are_added_up():
    def loss(w, i):
        return (mx.nd.Embedding(i, w, 4, 2, sparse_grad=True) ** 2).sum()

    w, i = mx.nd.arange(8).reshape((4, 2)), mx.nd.array([1, 1, 3])
    found = xdevice.data_parallel(loss, ["cpu", "cpu"], reduction="sum")(w, i)[1]
    assert found.asnumpy().tolist() == [[0, 0], [8, 12], [0, 0], [12, 14]]


def test_a_batch_of_mxnets_iterators_is_opened():
    batch = mx.io.DataBatch([mx.nd.ones((4, 2))], [mx.nd.ones(4)], pad=1)
    moved = xdevice.to_device(batch, "cpu", copy=True)
    assert type(moved) is mx.io.DataBatch
    assert moved.pad == 1
    assert moved.data[0] is not batch.data[0]
    assert xdevice.device_of(batch) == xdevice.cpu()
    assert [part.data[0].shape for part in xdevice.split_batch(batch, ["cpu", "cpu"])] == [
        (2, 2),
        (2, 2),
    ]


@pytest.mark.parametrize("kind", ["as_np_ndarray", "as_nd_ndarray"])
def test_a_list_of_arrays_becomes_one(kind):
    x, y, short = (
        getattr(mx.np.array(numbers), kind)() for numbers in ([1.0, 2.0], [3.0, 4.0], [1.0])
    )
    assert xdevice.tensor([x, y]).tolist() == [[1, 2], [3, 4]]
    assert xdevice.tensor([[x, y], [y, (5, 6)]], dtype="int32").tolist() == [
        [[1, 2], [3, 4]],
        [[3, 4], [5, 6]],
    ]
    with pytest.raises(xdevice.ArgumentError, match="cannot be made under mxnet"):
        xdevice.tensor([x, short])
