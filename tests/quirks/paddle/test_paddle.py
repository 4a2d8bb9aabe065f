"""What only PaddlePaddle does."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import xdevice
from xdevice import (
    NotSupportedError,
    all_reduce,
    cpu,
    device_of,
    devices_of,
    split_batch,
    to_device,
    to_numpy,
)

paddle = xdevice.backend("paddle").framework  # a plain import would crash after TensorFlow's
placement, hardware = xdevice.backend("paddle").placement, xdevice.backend("paddle").hardware

LIBRARIES = Path(__file__).parents[3] / "examples" / "libraries"

beside_tensorflow = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="needs TensorFlow too: `tox -e all`"
)
on_a_cpu_build = pytest.mark.skipif(
    paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu(),
    reason="needs PaddlePaddle's CPU build",
)


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("paddle"):
        yield


def python(code, *options, **environment):
    command, environment = [sys.executable, *options, "-c", code], {**os.environ, **environment}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    return done.returncode, done.stderr


# Importing

IN_A_THREAD = """
import threading
thread = threading.Thread(target=lambda: exec(FIRST))
thread.start()
thread.join()
import paddle
"""


def test_a_threads_first_use_is_dynamic():
    first = "import xdevice; xdevice.use('paddle'); xdevice.ones(2)"
    code = (
        f"FIRST = {first!r}\n{IN_A_THREAD}"
        "layer = paddle.nn.Linear(2, 2)\n"
        "layer(paddle.ones([1, 2])).sum().backward()\n"
        "modes = [paddle.in_dynamic_mode()]\n"
        "other = threading.Thread(target=lambda: modes.append(paddle.in_dynamic_mode()))\n"
        "other.start()\n"
        "other.join()\n"
        "for switch in (paddle.enable_static, paddle.disable_static):\n"
        "    switch()\n"
        "    modes.append(paddle.in_dynamic_mode())\n"
        "assert layer.weight.grad is not None and modes == [True, True, False, True], modes"
    )
    status, error = python(code)
    assert status == 0, error


def test_a_plain_threads_import_is_still_static():
    status, error = python(
        f"FIRST = 'import paddle'\n{IN_A_THREAD}assert not paddle.in_dynamic_mode()"
    )
    assert status == 0, f"the workaround in backends/paddle/__init__.py may go: {error}"


@beside_tensorflow
def test_plain_after_tensorflow_still_crashes():
    status, _ = python("import tensorflow, paddle")
    assert status < 0, (
        "no signal ended it: the import in backends/paddle/__init__.py may be plain again"
    )


@beside_tensorflow
def test_our_import_after_tensorflow_works():
    status, errors = python(
        "import sys, tensorflow, xdevice\n"
        "before = sys.getdlopenflags()\n"
        "paddle = xdevice.backend('paddle').framework\n"
        "assert sys.getdlopenflags() == before\n"
        "layer = paddle.nn.Linear(2, 2)\n"
        "layer(paddle.ones([1, 2])).sum().backward()\n"
        "assert layer.weight.grad.tolist() == [[1, 1], [1, 1]]\n"
    )
    assert status == 0, errors[-3000:]


def test_a_plain_import_still_warns_of_ccache():
    status, errors = python("import paddle", "-W", "error::UserWarning", PATH="")
    assert status == 1, "the filter in backends/paddle/__init__.py may go"
    assert "No ccache found" in errors, "the filter in backends/paddle/__init__.py may go"


def test_our_import_is_silent():
    status, errors = python(
        "import warnings, xdevice\n"
        "before = list(warnings.filters)\n"
        "xdevice.backend('paddle').framework\n"
        "assert warnings.filters == before\n",
        *("-W", "error::UserWarning"),
    )
    assert (status, errors) == (0, "")


@on_a_cpu_build
def test_a_cpu_build_asked_for_a_gpu_keeps_quiet(capfd):
    assert (xdevice.try_gpu(), xdevice.num_gpus(), xdevice.devices()) == (cpu(), 0, [cpu()])
    with pytest.raises(xdevice.DeviceNotFoundError):
        xdevice.zeros(1, device="gpu")
    assert capfd.readouterr().err == ""
    status, errors = python("import paddle; paddle.CUDAPlace(0)")  # which in 3.0 ended the process
    assert status != 0, "Paddle itself keeps quiet now"
    assert "Cannot use GPU" in errors, "Paddle itself keeps quiet now"


# Where is it


@pytest.mark.parametrize(
    ("cls", "category"),
    [
        (paddle.Tensor, "tensor"),
        (type(paddle.nn.Linear(1, 1).weight), "tensor"),
        (paddle.pir.Value, "tensor"),
        (paddle.static.Variable, "tensor"),
        (paddle.nn.Linear, "model"),
        (paddle.DataParallel, "model"),
        (paddle.CPUPlace, "device"),
        (paddle.CUDAPlace, "device"),
        (paddle.CUDAPinnedPlace, "device"),
        (paddle.CustomPlace, "device"),
        (paddle.base.core.XPUPlace, "device"),
        (type(paddle.ones([1]).place), "device"),
        (paddle.optimizer.SGD, None),
        (paddle.dtype, "data"),
    ],
)
def test_every_class_has_its_role(cls, category):
    assert placement.category(cls) == category


def test_any_place_is_its_device():
    assert (
        xdevice.as_device(paddle.CPUPlace()) is xdevice.as_device(paddle.ones([1]).place) is cpu()
    )
    with pytest.raises(xdevice.DeviceTypeError, match="undefined"):
        xdevice.as_device(paddle.base.core.Place())


def test_a_tensor_without_data_is_nowhere():
    with paddle.LazyGuard():
        lazy = paddle.nn.Linear(2, 2)
    emptied, cleared = paddle.ones([2]), paddle.ones([2])
    emptied._clear_data()
    cleared._clear()
    for obj in (lazy, emptied, cleared):
        with pytest.raises(xdevice.UnknownPlacementError, match="give it a value first"):
            device_of(obj)
        with pytest.raises(xdevice.UnknownPlacementError):
            to_device(obj, "cpu", copy=True)
    with pytest.raises(xdevice.UnknownPlacementError):
        to_numpy(cleared)


def test_a_compiled_functions_tensor_has_a_symbolic_device():
    seen = []

    def ask(x):
        with pytest.raises(xdevice.UnknownPlacementError, match="symbolic"):
            devices_of(x * 2)  # which has no name
        seen.append(repr(device_of(x)))

    @paddle.jit.to_static(full_graph=True)
    def compiled(x):
        ask(x)
        return x + xdevice.ones(2, device=device_of(x))

    assert compiled(paddle.ones([2])).tolist() == [2, 2]
    assert "known when the compiled function runs" in seen[0]


FIRST_WHILE_COMPILING = """
import paddle, xdevice
from k_means import k_means
from gaussian_process import kernel

def distances(x):
    xp = xdevice.namespace(x)
    eye = xp.eye(3, dtype=x.dtype, device=xdevice.device_of(x))
    centers, _ = k_means(x, 2, steps=2)
    moved = xdevice.to_device(xp.linalg.solve(eye, xp.matrix_transpose(x)), xdevice.device_of(x))
    return kernel(centers, xp.matrix_transpose(moved), 1.0)

x = paddle.arange(12, dtype="float32").reshape([4, 3])
compiled = paddle.jit.to_static(distances, full_graph={full_graph})
found = compiled(x)
print(bool(abs(found - distances(x)).max() < 1e-6))
"""


@pytest.mark.weekly
@pytest.mark.parametrize("full_graph", [False, True])
def test_a_compiled_function_may_be_the_first_that_uses_xdevice(full_graph, tmp_path):
    program = tmp_path / "program.py"  # one of the compilers reads the source code
    program.write_text(FIRST_WHILE_COMPILING.format(full_graph=full_graph), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(LIBRARIES)}
    words = [sys.executable, "-W", "ignore", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.stdout == "True\n", done.stderr[-3000:]


def test_a_compiled_function_of_source_code_calls_a_namespace():
    @paddle.jit.to_static(full_graph=True)
    def scaled(x):
        return xdevice.namespace(x).std(x, axis=0) * x

    assert scaled(paddle.to_tensor([[1.0], [3.0]])).tolist() == [[1], [3]]


def test_the_compiler_calls_the_methods_of_a_namespace():
    xp = xdevice.namespace()

    @paddle.jit.to_static(full_graph=False)
    def product(x):
        return xp.matrix_transpose(x) @ x

    assert product(paddle.to_tensor([[1.0, 2.0]])).tolist() == [[1, 2], [2, 4]]


@pytest.mark.weekly
def test_the_compiler_traces_the_first_use_of_a_name_and_linear_algebra(monkeypatch):
    _ = xdevice.namespace().linalg  # made before the compiler traces
    # its first use, which imports the name, is traced
    monkeypatch.delitem(vars(xdevice), "namespace")

    @paddle.jit.to_static(full_graph=False)
    def solved(x):
        xp = xdevice.namespace(x)
        return xp.linalg.solve(xp.reshape(x, (2, 2)), x[:2])

    assert solved(paddle.to_tensor([2.0, 0.0, 0.0, 4.0])).tolist() == [1, 0]


def test_paddles_compiler_still_binds_a_method_to_its_holder():
    holder = SimpleNamespace(std=xdevice.namespace().std.__wrapped__)

    @paddle.jit.to_static(full_graph=False)
    def compiled(x):
        return holder.std(x)

    with pytest.raises(Exception, match="has no attribute"):  # or as_attribute is not needed
        compiled(paddle.ones([2]))


# Moving. On a CPU build there is one place, so the adapter's own function is called: it always copies.


def leaf(values=(1.0, 2.0, 3.0)):
    x = paddle.to_tensor(values)
    x.stop_gradient = False
    return x


def test_paddles_copy_still_cuts_the_gradient():
    assert leaf()._copy_to(paddle.CPUPlace(), True).stop_gradient, "_Move may no longer be needed"


def test_both_orders_of_gradients_flow():
    x = leaf()
    y = placement.move(x, cpu(), False)
    assert y.data_ptr() != x.data_ptr()
    (first,) = paddle.grad((y**3).sum(), x, create_graph=True)
    (second,) = paddle.grad(first.sum(), x)
    assert (first.tolist(), second.tolist()) == ([3, 12, 27], [6, 12, 18])


def test_a_moved_parameter_is_a_tensor():
    weight = paddle.nn.Linear(2, 2).weight
    moved = placement.move(weight, cpu(), True)
    assert type(moved) is paddle.Tensor
    moved.sum().backward()
    assert weight.grad.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    "carry", [lambda x: placement.move(x, cpu(), False), placement.copy], ids=["move", "copy"]
)
def test_what_is_frozen_stays_frozen(carry):
    weight = paddle.nn.Linear(2, 2).weight
    weight.stop_gradient = True
    assert carry(weight).stop_gradient
    assert carry(weight).is_leaf
    assert carry(paddle.ones([2])).stop_gradient
    with paddle.no_grad():
        assert carry(leaf()).stop_gradient


def test_a_sparse_tensor_cannot_be_copied():
    sparse = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 2])
    assert device_of(sparse) is cpu()
    assert to_device(sparse, "cpu") is sparse
    for carry in (lambda x: to_device(x, "cpu", copy=True), to_numpy, xdevice.tensor):
        with pytest.raises(xdevice.NotSupportedError, match="to_dense"):
            carry(sparse)


class Tied(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.first, self.second = paddle.nn.Linear(2, 2), paddle.nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.first.bias.stop_gradient = True
        self.register_buffer("steps", paddle.zeros([1]))


def test_a_copied_layer_keeps_ties():
    model = Tied()
    copied = to_device(model, "cpu", copy=True)
    assert copied.first.weight is copied.second.weight
    assert copied.first.weight is not model.first.weight
    assert copied.first.bias.stop_gradient
    assert not copied.second.bias.stop_gradient
    names = [name for name, _ in xdevice.backend().models.tensors_of(copied)]
    assert sorted(names) == ["first.bias", "first.weight", "second.bias", "steps"]


# Scopes


def test_a_scope_puts_back_what_the_user_had_set():
    before = paddle.device.get_device()
    paddle.device.set_device("cpu")
    try:
        with xdevice.cpu():
            assert device_of(paddle.ones([1])) is cpu()
        assert paddle.device.get_device() == "cpu"
    finally:
        paddle.device.set_device(before)


def test_scopes_may_be_left_out_of_order():
    first, second = hardware.scope(cpu()), hardware.scope(cpu())
    before = paddle.device.get_device()
    first.__enter__()
    second.__enter__()
    (block,) = xdevice.backends.paddle.hardware._open_scopes[1:]
    block.previous = "the first scope's device"
    first.__exit__(None, None, None)
    assert block.previous == before
    second.__exit__(None, None, None)
    assert paddle.device.get_device() == before


def test_set_device_still_refuses_an_indexed_cpu():
    with pytest.raises(ValueError, match="device must be a string"):
        paddle.device.set_device("cpu:0")


# Creating


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_numbers_that_do_not_fit_are_an_error(dtype):
    data = np.array([1, 2], dtype)
    for given in (data, data[0], list(data)):
        with pytest.raises(xdevice.ArgumentError, match=f"no {dtype}"):
            xdevice.tensor(given)
    with pytest.raises(xdevice.ArgumentError, match=dtype):
        xdevice.zeros(2, dtype=dtype)
    assert xdevice.tensor(data, dtype="int64").tolist() == [1, 2]
    assert xdevice.tensor(data, dtype="bfloat16").astype("float32").tolist() == [1, 2]


def test_views_with_strides_of_short_floats_are_saved_and_converted(tmp_path):
    x = paddle.as_strided(paddle.arange(12).astype("bfloat16"), [2, 3], [6, 2])
    xdevice.save({"x": x}, tmp_path / "file")
    for found in (xdevice.load(tmp_path / "file")["x"], xdevice.convert(x, "paddle", copy=True)):
        assert found.astype("float32").tolist() == [[0, 2, 4], [6, 8, 10]]
    if find_spec("ml_dtypes") is None:
        with pytest.raises(NotSupportedError, match="NumPy has no bfloat16"):
            xdevice.convert(x, "numpy")
    else:
        assert xdevice.convert(x, "numpy").astype("float32").tolist() == [[0, 2, 4], [6, 8, 10]]


def test_paddle_still_takes_uint16_for_bfloat16():
    assert paddle.to_tensor(np.array([1], "uint16")).dtype == paddle.bfloat16


@pytest.mark.parametrize("name", ["float", "int", "half", "raw", "pstring", "Tensor"])
def test_numpys_other_names_are_no_dtypes(name):
    with pytest.raises(xdevice.ArgumentError, match=r"does not exist|differs in width"):
        xdevice.zeros(2, dtype=name)


def test_any_layout_and_byte_order():
    data = np.arange(6, dtype="float32").reshape(2, 3)
    repeated = np.broadcast_to(data[0], (4, 3))
    for given in (data[::-1, ::-1], np.asfortranarray(data), data.T, data.astype(">f4"), repeated):
        made = xdevice.tensor(given)
        assert made.dtype == paddle.float32
        assert np.array_equal(to_numpy(made), given)


def test_pythons_numbers_have_the_default_dtype():
    dtypes = [
        xdevice.tensor(data).dtype
        for data in ([1.5], [1], [True], [1j], np.float64(1.5), np.array([1j]))
    ]
    assert dtypes == [
        paddle.float32,
        paddle.int64,
        paddle.bool,
        paddle.complex64,
        paddle.float64,
        paddle.complex128,
    ]
    paddle.set_default_dtype("float64")
    try:
        assert xdevice.tensor([1.5]).dtype == xdevice.rand(1).dtype == paddle.float64
    finally:
        paddle.set_default_dtype("float32")


def test_full_keeps_whole_numbers_whole():
    assert xdevice.full(2, 2**40 + 1).tolist() == [2**40 + 1] * 2
    assert paddle.full([1], 2**40 + 1).dtype == paddle.float32, "Paddle keeps them itself now"
    with pytest.raises(xdevice.ArgumentError, match="'a' is not a number"):
        xdevice.full(2, "a")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint8", "int16", "complex64"])
def test_a_range_of_any_dtype(dtype):
    made = xdevice.arange(1, 4, dtype=dtype)
    assert str(made.dtype) == f"paddle.{dtype}"
    assert made.astype("int64").tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_uniform_numbers_of_16_bits_stay_under_one(dtype):
    xdevice.seed(0)
    numbers = xdevice.rand(100_000, dtype=dtype).astype("float32")
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    assert abs(float(numbers.mean()) - 0.5) < 0.01


def test_paddles_uniform_still_reaches_one():
    paddle.seed(0)
    assert float(paddle.rand([100_000], dtype="bfloat16").astype("float32").max()) == 1


def test_a_factory_without_the_dtype_says_so():
    with pytest.raises(xdevice.ArgumentError, match="rand has no int32"):
        xdevice.rand(2, dtype="int32")


def test_a_tensor_of_a_tensor_is_detached():
    x = leaf()
    made, cast = xdevice.tensor(x), xdevice.tensor(x, dtype="float64")
    assert made.stop_gradient
    assert cast.stop_gradient
    assert cast.dtype == paddle.float64
    made[0] = 9.0
    assert x.tolist() == [1, 2, 3]


# To the host, memory, time


@pytest.mark.skipif(
    find_spec("ml_dtypes") is None, reason="needs ml_dtypes, which TensorFlow and JAX bring along"
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_bfloat16_with_ml_dtypes(dtype):
    array = to_numpy(xdevice.tensor([1.0, -2.5], dtype=dtype))
    assert array.dtype.name == dtype
    assert array.astype("float32").tolist() == [1.0, -2.5]
    assert xdevice.tensor(array).dtype == getattr(paddle, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_bfloat16_without_ml_dtypes(dtype, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(xdevice.NotSupportedError, match=f"NumPy has no {dtype}"):
        to_numpy(xdevice.ones(2, dtype=dtype))


def test_paddles_bfloat16_is_still_integers():
    assert paddle.ones([1], dtype="bfloat16").numpy().dtype == np.uint16


@on_a_cpu_build
def test_a_cpu_build_knows_no_gpu_facts():
    with pytest.raises(ValueError, match="CPU-only"):
        paddle.device.cuda.memory_allocated()
    with pytest.raises(TypeError):
        paddle.device.synchronize()
    stats = xdevice.memory_stats("cpu")
    assert (stats["allocated"], stats["reserved"], stats["peak"]) == (None, None, None)
    xdevice.synchronize()
    xdevice.empty_cache()
    assert hardware.build() == {"version": paddle.__version__, "compute": "cpu", "toolkit": None}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError("(External) CUDA error(2), out of memory."), True),
        (OSError("(External) CUDNN error(2), CUDNN_STATUS_ALLOC_FAILED."), True),
        (OSError(28, "No space left on device"), False),
        (
            OSError(
                "(External) CUDA error(209), no kernel image is available for execution on the device."
            ),
            False,
        ),
        (ValueError("CUDA error(2)"), False),
    ],
)
def test_gpu_libraries_out_of_memory(error, expected):
    assert xdevice.is_out_of_memory(error) is expected


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint8", "int16"])
@pytest.mark.parametrize(("op", "result"), [("sum", [4, 5]), ("max", [3, 4]), ("min", [1, 1])])
def test_every_dtype_can_be_reduced(dtype, op, result):
    given = [paddle.to_tensor([1, 4]).astype(dtype), paddle.to_tensor([3, 1]).astype(dtype)]
    for found in xdevice.all_reduce(given, op):
        assert found.dtype == given[0].dtype
        assert found.astype("float32").tolist() == result


class Square(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @paddle.autograd.py_layer.once_differentiable
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensor()[0] * gradient


def test_the_second_derivative_of_what_is_once_differentiable_is_refused_and_not_zero():
    first = xdevice.value_and_grad(lambda w: Square.apply(w).sum())
    x = paddle.to_tensor([1.0, 2.0])
    assert first(x)[1].tolist() == [2, 4]
    with pytest.raises(
        xdevice.NotSupportedError, match="of Square, which is marked once_differentiable"
    ):
        xdevice.value_and_grad(lambda w: (first(w)[1] ** 2).sum())(x)


def test_the_gradient_of_a_sparse_embedding_has_its_parameters_shape():
    def loss(w, i):
        return (paddle.nn.functional.embedding(i, w, sparse=True) ** 2).sum()

    w, i = paddle.arange(8, dtype="float32").reshape([4, 2]), paddle.to_tensor([1, 1, 3])
    expected = [[0, 0], [8, 12], [0, 0], [12, 14]]
    assert xdevice.value_and_grad(loss)(w, i)[1].tolist() == expected
    assert (
        xdevice.data_parallel(loss, ["cpu", "cpu"], reduction="sum")(w, i)[1].tolist() == expected
    )


@pytest.mark.parametrize("sparse", [lambda x: x.to_sparse_coo(2), lambda x: x.to_sparse_csr()])
def test_sparse_tensors_are_refused_by_name_where_numbers_are_needed(sparse, tmp_path):
    x = sparse(paddle.eye(4))
    for ask in (
        lambda: xdevice.all_reduce([x, x]),
        lambda: xdevice.save({"x": x}, tmp_path / "file"),
        lambda: xdevice.tensor([x]),  # Paddle crashes
    ):
        with pytest.raises(xdevice.ArgumentTypeError, match="a sparse tensor"):
            ask()
    with pytest.raises(xdevice.NotSupportedError, match="paddle cannot split a sparse"):
        xdevice.split_batch(x, ["cpu", "cpu"])


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_a_dtype_without_kernels_says_what_to_convert_it_to(dtype):
    x = paddle.ones([4]).astype(dtype)
    for verb, act in (
        ("split", lambda: split_batch(x, ["cpu", "cpu"])),
        ("reduce", lambda: all_reduce([x, x])),
    ):
        with pytest.raises(
            NotSupportedError, match=f"paddle cannot {verb} {dtype}; convert it first"
        ):
            act()


@pytest.mark.parametrize("dividend", [7, [7]])
def test_a_remainder_by_zero_does_not_end_the_process(backend, dividend):
    xp = xdevice.namespace()
    with pytest.raises(Exception, match="division by zero"):  # a class of its own
        xp.remainder(xp.asarray(dividend, dtype="int32"), xp.asarray([1, 0], dtype="int32"))
