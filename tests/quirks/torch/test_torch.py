"""What only PyTorch does."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import xdevice
from xdevice import Device, cpu, device_of, to_device
from xdevice.backends.kit.private_names import missing
from xdevice.backends.torch.exchange import export
from xdevice.virtual.request import ENV


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("torch"):
        yield


def test_a_cpu_index_that_torch_ignores_is_the_cpu():
    assert torch.empty(1, device="cpu:1").device == torch.device("cpu"), (
        "torch no longer ignores it: mend as_device"
    )
    assert xdevice.as_device(torch.device("cpu:1")) is cpu()
    with pytest.raises(xdevice.DeviceNotFoundError):
        xdevice.native("cpu:1")


def test_cuda_without_an_index_is_the_current():
    assert xdevice.as_device(torch.device("cuda")) == Device("gpu", 0)
    assert not torch.cuda.is_initialized()


def test_a_meta_tensor_is_on_meta_and_has_no_values():
    x = torch.ones(3, device="meta")
    assert device_of(x) == Device("meta")
    assert xdevice.devices_of([x, torch.ones(1)]) == {Device("meta"), cpu()}
    with pytest.raises(xdevice.MixedDeviceError, match=r"on cpu:0: \[1\]; on meta:0: \[0\]"):
        device_of([x, torch.ones(1)])
    with pytest.raises(xdevice.UnknownPlacementError, match="no values"):
        xdevice.to_numpy(x)
    for there in (x, [x], torch.nn.Linear(2, 2, device="meta")):
        with pytest.raises(xdevice.NotSupportedError, match="no values"):
            to_device(there, "cpu")


def test_copies_share_a_shared_parameter():
    a, b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    b.weight = a.weight
    first, second, weight = to_device([a, b, a.weight], "cpu", copy=True)
    assert first.weight is second.weight is weight
    assert weight is not a.weight


def test_an_empty_module_needs_a_device_there():
    with pytest.raises(xdevice.DeviceNotFoundError):
        to_device(torch.nn.ReLU(), "gpu:99")


def test_foreign_kinds_keep_their_word():
    assert xdevice.backend().hardware.native(Device("meta")) == torch.device("meta", 0)


def test_a_model_on_two_devices():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, device="meta"))
    with pytest.raises(
        xdevice.MixedDeviceError,
        match=r"on cpu:0: 0\.weight, 0\.bias; on meta:0: 1\.weight, 1\.bias",
    ):
        device_of(net)
    assert not xdevice.is_same_device(net)
    with pytest.raises(xdevice.MixedDeviceError, match=r"\['net'\]\.1\.weight"):
        device_of({"net": net})


def test_a_buffer_elsewhere_counts_too():
    net = torch.nn.BatchNorm1d(2)
    net.running_mean = net.running_mean.to("meta")
    assert xdevice.devices_of(net) == {cpu(), Device("meta")}


def test_an_empty_module_may_be_moved():
    assert to_device(torch.nn.ReLU(), "cpu")(torch.ones(1)) == 1
    assert to_device(relu := torch.nn.ReLU(), "cpu", copy=False) is relu
    for model in (torch.nn.ReLU(), [torch.nn.ReLU()]):
        for ask in (device_of, xdevice.devices_of, xdevice.check_same_device):
            with pytest.raises(xdevice.NotATensorError, match="no parameters"):
                ask(model)


def test_an_optimiser_stays_if_nothing_moves():
    net = torch.nn.Linear(2, 1)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    before = copy.deepcopy(net.state_dict())
    to_device(net, "cpu")(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    assert not torch.equal(before["weight"], net.weight)


def test_tied_parameters_stay_tied_in_a_copy():
    net = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    net[1].weight = net[0].weight
    copied = to_device(net, "cpu", copy=True)
    assert copied[0].weight is copied[1].weight
    assert copied[0].weight is not net[0].weight


def test_a_packed_sequence_is_taken_whole():
    packed = pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    assert device_of(packed) == cpu()
    assert to_device({"batch": packed}, "cpu")["batch"] is packed


def test_a_copy_keeps_gradients_and_frozen():
    weight = torch.nn.Parameter(torch.ones(2))
    (to_device(weight, "cpu", copy=True) * 3).sum().backward()
    assert weight.grad.tolist() == [3, 3]
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    assert not to_device(frozen, "cpu", copy=True).requires_grad


def test_the_frameworks_own_default_is_followed():
    torch.set_default_device("meta")
    try:
        assert device_of(xdevice.ones(2)) == Device("meta")
        with cpu():
            assert device_of(xdevice.ones(2)) == device_of(torch.ones(2)) == cpu()
        assert device_of(torch.ones(2)) == Device("meta")
    finally:
        torch.set_default_device(None)
    torch.set_default_dtype(torch.float64)
    try:
        assert xdevice.ones(2).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_lazy_conjugates_are_resolved():
    z = torch.tensor([1 + 2j])
    assert xdevice.to_numpy(z.conj()).tolist() == [1 - 2j]
    assert xdevice.to_numpy(z.conj().imag).tolist() == [-2]


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own, of its prototypes
@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: torch.eye(2).to_sparse(), "a sparse_coo tensor; take its to_dense"),
        (lambda: torch.eye(2).to_sparse_csr(), "a sparse_csr tensor; take its to_dense"),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "a nested tensor; take its to_padded",
        ),
        (
            lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
            "quint8 tensor; take its dequantize",
        ),
    ],
)
def test_a_layout_that_numpy_lacks(make, hint):
    with pytest.raises(xdevice.NotSupportedError, match=hint):
        xdevice.to_numpy(make())


def test_a_dtype_that_numpy_lacks_is_not_supported():
    with pytest.raises(xdevice.NotSupportedError, match="bfloat16"):
        xdevice.to_numpy(torch.ones(2, dtype=torch.bfloat16))


ACCELERATOR_ERROR = getattr(torch, "AcceleratorError", RuntimeError)  # torch 2.4 has none


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"
        ),
        RuntimeError("MPS backend out of memory (MPS allocated: 5.00 GB)"),
        ACCELERATOR_ERROR(
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"
        ),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ],
)
def test_all_of_its_words_for_no_memory_are_known(error):
    assert xdevice.is_out_of_memory(error)


@pytest.mark.parametrize("size", [(2**62,), (2**40, 2**40), (2**60, 4), (2**45,)])
def test_endless_sizes_are_out_of_memory(size):
    for call in (lambda: torch.empty(size), lambda: torch.zeros(1).expand(size).contiguous()):
        with pytest.raises(RuntimeError) as error:
            call()
        assert xdevice.is_out_of_memory(error.value), error.value


def test_a_tensor_subclass_is_followed():
    class Mine(torch.Tensor):
        pass

    x = torch.ones(3).as_subclass(Mine)
    assert device_of(x) == cpu()
    assert type(to_device(x, "cpu", copy=True)) is Mine


def test_step_threads_have_the_callers_precision():
    step = xdevice.data_parallel(
        lambda w, x: ((x @ w).sum(), (x @ w).dtype), ["cpu", "cpu"], has_aux=True
    )
    w, x = torch.ones(3, 2), torch.ones(4, 3)
    assert step(w, x)[0][1] == [torch.float32] * 2
    with torch.autocast("cpu", torch.bfloat16):
        assert step(w, x)[0][1] == [torch.bfloat16] * 2


def test_replicas_are_leaves_with_gradients():
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    with torch.inference_mode():
        made = torch.ones(2)
        replicas = [
            *xdevice.replicate([frozen * 2, made, torch.arange(3)], ["cpu"])[0],
            xdevice.replicate(frozen, ["cpu"])[0],
        ]
    assert [(x.is_leaf, x.requires_grad) for x in replicas] == [
        (True, True),
        (True, True),
        (True, False),
        (True, True),
    ]


def test_a_step_in_a_forked_process():
    # With any GPU, also a virtual one, torch's autograd has a thread for each device and refuses to run after a fork.
    code = (
        "import os, torch, xdevice\n"
        "torch.set_num_threads(1)\n"
        "step = xdevice.data_parallel(lambda w, x: (x @ w).sum(), ['cpu', 'cpu'])\n"
        "w, x = torch.ones(3), torch.ones(4, 3)\n"
        "step(w, x)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(int(step(w, x)[0].item()))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    env = {name: value for name, value in os.environ.items() if name != ENV} | {
        "CUDA_VISIBLE_DEVICES": ""
    }
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
    assert run.stdout.strip() == "6", run.stderr


def quantized():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LSTM(2, 2))
    return torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear, torch.nn.LSTM})


def frozen():
    return torch.jit.freeze(torch.jit.script(torch.nn.Linear(3, 2).eval()))


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"
)
@pytest.mark.parametrize("make", [quantized, frozen])
def test_packed_weights_stay_on_the_cpu(make):
    model, meta = make(), torch.ones(1, device="meta")
    assert not list(model.parameters())
    assert device_of(model) is cpu()
    assert xdevice.devices_of([model, meta]) == {cpu(), Device("meta")}
    assert to_device([model], "cpu")[0] is model
    assert device_of(to_device(model, "cpu", copy=True)) is cpu()


def test_streams_and_events_are_plain_data():
    x = torch.ones(1)
    tree = {"x": x, "stream": torch.Stream("cpu"), "event": torch.Event("cpu")}
    assert to_device(tree, "cpu", copy=True)["stream"] is tree["stream"]
    assert device_of(tree) is cpu()


def test_private_names_are_there():
    from xdevice.backends.torch.private_names import NAMES
    from xdevice.virtual.torch.private_names import NAMES as NAMES_OF_VIRTUAL_GPUS

    assert missing([*NAMES, *NAMES_OF_VIRTUAL_GPUS]) == []


def test_a_packed_sequence_is_copied_with_its_gradients_and_not_split():
    x = torch.ones(3, requires_grad=True)
    packed = pack_sequence([x * 2, torch.ones(2)])
    copied = to_device([packed], "cpu", copy=True)[0]
    assert type(copied) is type(packed)
    assert copied.data.data_ptr() != packed.data.data_ptr()
    copied.data.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    for devices in (["cpu"], ["cpu", "cpu"]):
        with pytest.raises(xdevice.NotATensorError, match=r"PackedSequence holds tensors.*\[1\]"):
            xdevice.split_batch([torch.ones(2), packed], devices)


PACKED = {
    "sparse_coo": lambda: torch.eye(4).to_sparse(),
    "sparse_csr": lambda: torch.eye(4).to_sparse_csr(),
    "sparse_csc": lambda: torch.eye(4).to_sparse_csc(),
    "sparse_bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "mkldnn": lambda: torch.eye(4).to_mkldnn(),
    "MaskedTensor": lambda: torch.masked.masked_tensor(torch.eye(4), torch.eye(4) > 0),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2)] * 4),
    "qint8": lambda: torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.filterwarnings(
    "ignore:Sparse:UserWarning", "ignore:The PyTorch API of nested:UserWarning"
)
@pytest.mark.filterwarnings(
    "ignore:.*quantize.* is deprecated", "ignore:The PyTorch API of MaskedTensors:UserWarning"
)
def test_packed_kinds_are_refused_by_name_where_numbers_are_needed(kind, tmp_path):
    x = PACKED[kind]()
    for ask in (
        lambda: xdevice.all_reduce([{"a": x}] * 2),
        lambda: xdevice.save({"a": x}, tmp_path / "file"),
        lambda: xdevice.tensor([x]),
        lambda: xdevice.data_parallel(lambda w, b: b.sum(), ["cpu", "cpu"])(x, torch.ones(2)),
    ):
        with pytest.raises(xdevice.ArgumentTypeError, match=f"{kind}"):
            ask()
    if kind == "qint8":
        parts = xdevice.split_batch(x, ["cpu", "cpu"])
        assert torch.equal(torch.cat([part.dequantize() for part in parts]), x.dequantize())
    else:
        with pytest.raises(xdevice.NotSupportedError, match=f"{kind}|gives this Tensor no shape"):
            xdevice.split_batch([torch.ones(4), x], ["cpu", "cpu"])


def test_sparse_gradients_are_added_up():
    def loss(w, i):
        return torch.nn.functional.embedding(i, w, sparse=True).square().sum()

    w, i = torch.arange(8.0).reshape(4, 2), torch.tensor([1, 1, 3])
    expected = xdevice.value_and_grad(loss)(w, i)[1]
    found = xdevice.data_parallel(loss, ["cpu", "cpu"], reduction="sum")(w, i)[1]
    assert expected.is_sparse
    assert found.tolist() == expected.to_dense().tolist()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


def test_the_second_derivative_of_what_is_once_differentiable_is_refused_and_not_zero():
    x = torch.tensor([1.0, 2.0])

    def square(w):
        return Square.apply(w).sum()

    first = xdevice.value_and_grad(square)
    assert first(x)[1].tolist() == [2, 4]
    with pytest.raises(
        xdevice.NotSupportedError, match="of Square, which is marked once_differentiable"
    ):
        xdevice.value_and_grad(lambda w: (first(w)[1] ** 2).sum())(x)
    # a first derivative inside is a constant there
    assert xdevice.value_and_grad(lambda w: (first(x)[1] * w).sum())(x)[1].tolist() == [2, 4]


def test_generators_of_random_numbers_are_data():
    generator = torch.Generator()
    assert to_device([torch.ones(2), generator], "cpu", copy=True)[1] is generator


def test_numbers_that_pytorch_cannot_add_up_are_not_supported():
    eighths = torch.ones(4).to(torch.float8_e4m3fn)
    with pytest.raises(xdevice.NotSupportedError, match="convert it to float32 first"):
        xdevice.all_reduce([eighths, eighths])


def test_a_list_of_tensors_becomes_one():
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert xdevice.tensor([x, y]).tolist() == [[1, 2], [3, 4]]
    assert xdevice.tensor([x, (5, 6)], dtype="int32").tolist() == [[1, 2], [5, 6]]
    with pytest.raises(xdevice.ArgumentError, match="equal size"):
        xdevice.tensor([x, y[:1]])


@pytest.mark.parametrize("name", ["int4", "uint4", "int2"])
def test_numpy_refuses_integers_of_less_than_a_byte(name):
    with pytest.raises(
        xdevice.NotSupportedError, match=f"NumPy cannot hold this torch.{name} tensor"
    ):
        xdevice.to_numpy(torch.empty(2, dtype=getattr(torch, name)))


def test_no_memory_is_shared_of_a_tensor_without_memory():
    zeros = torch._efficientzerotensor(2)  # as forward-mode differentiation makes them
    assert export(zeros) is None
    assert xdevice.to_numpy(zeros).tolist() == [0, 0]


def test_value_and_grad_keeps_multithreading_disabled():
    def loss(w):
        assert not torch._C._is_multithreading_enabled()
        return (w * w).sum()

    with torch.autograd.set_multithreading_enabled(False):
        _, gradient = xdevice.value_and_grad(loss)(torch.ones(2))
        assert not torch._C._is_multithreading_enabled()
    assert gradient.tolist() == [2, 2]


FIRST_WHILE_COMPILING = """
import torch, xdevice

def ridge(x, y):
    xp = xdevice.namespace(x)
    eye = xp.eye(2, dtype=x.dtype, device=xdevice.device_of(x))
    return xp.linalg.solve(x @ x + 0.1 * eye, y)

def made(x):
    xp = xdevice.namespace(x)
    whole = xp.full_like(x, 3, dtype="int8") + xdevice.tensor([1, 2], dtype="int8")
    return xp.eye(2, device="cpu") + xp.linspace(0, 1, 2, dtype="complex64") + whole

x = torch.eye(2)
assert torch.compile(made, backend="eager")(x).tolist() == made(x).tolist()
print(torch.compile(ridge, backend="aot_eager")(x, x).tolist() == ridge(x, x).tolist())
"""


@pytest.mark.weekly
def test_the_first_namespace_of_a_process_may_be_compiled_without_a_warning():
    words = [sys.executable, "-W", "error::UserWarning", "-c", FIRST_WHILE_COMPILING]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr[-3000:]
