"""What programs for CUDA do, on two virtual GPUs that stand in for CUDA's."""

import copy
import io
import multiprocessing
import os
import pickle
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (everybody's name for it)
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import cpp_extension
from torch.utils.data import DataLoader, TensorDataset

import xdevice
from xdevice import device_of, gpu, strict

FIRST, SECOND = "cuda:0", "cuda:1"


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("torch"):
        xdevice.count()
        yield


def on_both(call):
    """The call's tensors on the CPU and on a virtual GPU, from equal random numbers."""
    found = []
    for device in ("cpu", SECOND):
        torch.manual_seed(0)
        found.append([tensor.detach().cpu() for tensor in call(device)])
    return zip(*found, strict=True)


# ---------------------------------------------------------------- torch.cuda


def test_torch_cuda_says_what_is_there_and_that_it_is_virtual():
    cuda = torch.cuda
    assert cuda.is_available()
    assert cuda.device_count() == torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator(check_available=True) == torch.device("cuda")
    assert cuda.get_device_name(1) == "virtual GPU 1 (xdevice, on the CPU)"
    assert cuda.get_device_properties(0).is_virtual
    assert cuda.get_device_capability() == (0, 0)
    assert cuda.get_arch_list() == []
    assert torch.version.cuda == (xdevice.backend().hardware.build()["toolkit"] or "0.0")
    assert torch.backends.cuda.is_built()
    assert not torch.backends.cudnn.is_available()
    assert cuda.can_device_access_peer(0, 1)
    assert xdevice.native(gpu(1)) == torch.device(SECOND)
    assert device_of(torch.ones(1).cuda(1)) is gpu(1)
    properties = xdevice.properties(gpu(1))
    assert properties["virtual"]
    assert properties["total_memory"]


def test_the_current_device_is_what_cuda_means():
    with torch.cuda.device(1):
        x = torch.ones(2)
        made = [
            x.cuda(),
            x.to("cuda"),
            torch.tensor([1.0], device="cuda"),
            torch.empty(1, device="cuda"),
        ]
        made += [nn.Linear(1, 1).cuda().weight, x.to(0).to("cuda"), torch.cuda.Stream()]
        assert {y.device for y in made} == {torch.device(SECOND)}
        assert torch.cuda.current_device() == 1
    assert torch.ones(1).cuda().device == torch.device(FIRST)
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device(SECOND)
    assert torch.ones(1, device=0).is_cuda
    assert torch.cuda.current_device() == 1
    torch.cuda.set_device(0)


def test_memory_is_counted():
    torch.cuda.reset_peak_memory_stats(1)
    before = torch.cuda.memory_allocated(1)
    x = torch.zeros(1000, device=SECOND)
    assert torch.cuda.memory_allocated(1) == before + 4096, "blocks of 512 bytes"
    del x
    assert torch.cuda.memory_allocated(1) == before
    assert torch.cuda.max_memory_allocated(1) == before + 4096
    assert torch.cuda.memory_reserved(1) >= 2 << 20
    free, total = torch.cuda.mem_get_info(1)
    assert 0 < free <= total
    assert "allocated memory" in torch.cuda.memory_summary(1).lower()
    torch.cuda.empty_cache()


def test_a_storage_is_resized():
    storage = torch.ones(2, device=SECOND).untyped_storage()
    before = torch.cuda.memory_allocated(1)
    assert storage.resize_(1000).nbytes() == 1000
    assert torch.cuda.memory_allocated(1) == before + 512


def test_streams_and_events_take_real_time():
    stream, start, end = (
        torch.cuda.Stream(),
        *(torch.cuda.Event(enable_timing=True) for _ in range(2)),
    )
    x = torch.ones(64, 64, device="cuda")
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream != torch.cuda.default_stream()
        start.record()
        for _ in range(20):
            x = x @ x
        end.record()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.current_stream().wait_stream(stream)
    stream.wait_event(stream.record_event())
    torch.cuda.synchronize()
    x.record_stream(stream)
    assert (stream.priority, stream.priority_range()) == (0, (0, -3))
    assert end.query()
    assert stream.query()
    assert start.elapsed_time(end) > 0
    assert torch.cuda.Event().device is None
    assert end.device == torch.device(FIRST)
    assert repr(torch.cuda.Event()) == "<torch.cuda.Event uninitialized>"
    assert repr(end) == f"<torch.cuda.Event {end.cuda_event:#x}>"
    assert stream._as_parameter_.value == stream.cuda_stream
    with torch.cuda.device(1):
        other = torch.cuda.current_stream().record_event(torch.cuda.Event(enable_timing=True))
        with pytest.raises(
            RuntimeError, match="Event device 0 does not match recording stream's device 1"
        ):
            end.record()
    with pytest.raises(RuntimeError, match="CUDA error: invalid resource handle"):
        end.elapsed_time(other)


def test_streams_come_from_pools_of_32():
    first, urgent = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    streams = [first, *(torch.cuda.Stream() for _ in range(31))]
    assert len({stream.cuda_stream for stream in streams}) == 32
    assert torch.cuda.Stream() == first
    assert urgent not in streams
    assert urgent.priority == -1
    elsewhere = [torch.cuda.Stream(SECOND).cuda_stream for _ in range(32)]
    assert first.cuda_stream not in elsewhere
    reserved = []
    for _ in range(96):
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.empty(2 << 20, dtype=torch.uint8, device="cuda")
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[0] < reserved[31] == reserved[95], "each stream has a cache"
    torch.cuda.empty_cache()
    with pytest.raises(RuntimeError, match="priority to be less than or equal to 0, got 1"):
        torch.cuda.Stream(priority=1)
    for stream_of in (torch.cuda.current_stream, torch.cuda.default_stream):
        assert stream_of(-1).device == torch.device("cuda", 0)
        with pytest.raises(
            RuntimeError, match=r"Device index value 2 is out of index range \[0, 2\)"
        ):
            stream_of(2)


def test_random_numbers_are_the_devices_own():
    torch.manual_seed(3)
    first, second, state = (
        torch.rand(3, device=FIRST),
        torch.rand(3, device=SECOND),
        torch.cuda.get_rng_state(1),
    )
    torch.rand(5)
    after = torch.rand(3, device=SECOND)
    torch.cuda.set_rng_state(state, 1)
    assert torch.equal(first.cpu(), second.cpu())
    assert torch.equal(torch.rand(3, device=SECOND), after)
    torch.cuda.manual_seed_all(3)
    assert torch.equal(torch.rand(3, device=SECOND), second)
    assert torch.cuda.initial_seed() == 3
    generator = torch.Generator(SECOND).manual_seed(3)
    assert torch.equal(torch.rand(3, device=SECOND, generator=generator), second)


def test_what_people_get_wrong_raises_as_on_cuda():
    a, b, host = torch.ones(3, device=FIRST), torch.ones(3, device=SECOND), torch.ones(3)
    mixed = "Expected all tensors to be on the same device, but found at least two devices, "
    drawn = torch.Generator(SECOND)
    indices = r"indices should be either on cpu or on the same device as the indexed tensor \("
    for error, words, call in (
        (RuntimeError, mixed + "cuda:0 and cuda:1!", lambda: a + b),
        (RuntimeError, mixed + "cuda:0 and cpu!", lambda: a + host),
        (RuntimeError, indices + "cuda:0", lambda: a[torch.tensor([0], device=SECOND)]),
        (RuntimeError, indices + "cpu", lambda: host[torch.tensor([0], device=FIRST)]),
        (RuntimeError, indices + "cpu", lambda: host[a > 0]),
        (
            RuntimeError,
            mixed + "cuda:0 and cpu!",
            lambda: host.index_put_([torch.tensor([0], device=FIRST)], a[:1]),
        ),
        (
            RuntimeError,
            "expected device cuda:0 but got device cpu for value tensor",
            lambda: a.index_put([torch.tensor([0])], host[:1], accumulate=True),
        ),
        (
            RuntimeError,
            "masked_fill_: Expected inputs to be on same device",
            lambda: host.masked_fill(host > 0, a[0]),
        ),
        (RuntimeError, mixed + "cuda:0 and cuda:1!", lambda: torch.heaviside(a, b[0])),
        (
            RuntimeError,
            mixed + "cuda:0 and cpu!",
            lambda: a.index_put([torch.tensor([0])], host[:1]),
        ),
        (
            RuntimeError,
            "Expected a 'cuda' device type for generator",
            lambda: a.uniform_(generator=torch.Generator()),
        ),
        (
            RuntimeError,
            "Expected a 'cpu' generator device but found 'cuda:1'",
            lambda: torch.randperm(3, generator=drawn),
        ),
        (
            RuntimeError,
            "Expected a 'cpu' device type for generator but found 'cuda'",
            lambda: torch.rand(3, generator=drawn),
        ),
        (
            RuntimeError,
            "lstsq: `driver` other than `gels`",
            lambda: torch.linalg.lstsq(a.diag(), a, driver="gelsy"),
        ),
        (TypeError, "can't convert cuda:0 device type tensor to numpy", a.numpy),
        (TypeError, "can't convert cuda:0 device type tensor to numpy", lambda: np.asarray(a)),
        (
            torch.AcceleratorError,
            "CUDA error: invalid device ordinal\n",
            lambda: torch.ones(1, device="cuda:2"),
        ),
        (
            torch.AcceleratorError,
            "CUDA error: invalid device ordinal\n",
            lambda: torch.cuda.set_device(5),
        ),
        (
            torch.AcceleratorError,
            "CUDA error: invalid device ordinal\n",
            lambda: torch.cuda.mem_get_info(5),
        ),
        (
            RuntimeError,
            "Invalid device argument 5: did you call init",
            lambda: torch.cuda.memory_allocated(5),
        ),
        (
            RuntimeError,
            "Invalid device argument 5: did you call init",
            lambda: torch.cuda.reset_peak_memory_stats(5),
        ),
        (
            torch.OutOfMemoryError,
            "CUDA out of memory. Tried to allocate",
            lambda: torch.empty(10**14, device="cuda"),
        ),
        (
            torch.OutOfMemoryError,
            "Tried to allocate more than 1EB",
            lambda: torch.empty(1 << 60, device="cuda"),
        ),
    ):
        with pytest.raises(error, match=words) as caught:
            call()
        assert (
            getattr(caught.value, "error_code", 101) == 101
        )  # that of a device that does not exist
    with (
        strict(),
        pytest.raises(xdevice.MixedDeviceError, match="was given tensors on gpu:0 and gpu:1"),
    ):
        a + b
    assert (a + torch.tensor(1.0)).tolist() == [2, 2, 2]
    assert a[torch.tensor([0])].tolist() == [1]
    solved = torch.linalg.lstsq(a.diag() * 2, a[:, None])
    assert solved.solution.flatten().tolist() == [0.5] * 3
    assert solved.rank.numel() == 0


def test_a_value_without_dimensions_comes_from_any_device():
    other = torch.tensor(7.0, device=SECOND)
    for device, values in (("cpu", (other,)), (FIRST, (other, torch.tensor(7.0)))):
        x, mask = torch.zeros(3, device=device), torch.tensor([True, False, True], device=device)
        for value in values:
            assigned = [x.clone() for _ in range(4)]
            assigned[0][mask] = value
            assigned[1][mask.to(SECOND)] = value
            assigned[2][torch.tensor([0, 2], device=SECOND)] = value
            assigned[3].index_fill_(0, torch.tensor([0, 2], device=device), value)
            if device != "cpu":
                assigned += x.masked_fill(mask, value), torch.where(mask, value, x)
            for each in (*assigned, torch.full_like(x, 5).fill_(value) * mask):
                assert each.tolist() == [7, 0, 7]
                assert each.device == x.device
    with strict(), pytest.raises(xdevice.MixedDeviceError, match=r"gpu:0 and gpu:1"):
        torch.zeros(3, device=FIRST).fill_(other)


CONVOLVED = "Input type (torch.{}FloatTensor) and {} type (torch.{}FloatTensor) should be the same"


@pytest.mark.filterwarnings("ignore:Sparse (CSR tensor support|invariant checks)")
def test_a_layer_whose_input_was_forgotten_says_what_cuda_says():
    """In the words that PyTorch's own function for it has in the version that is installed, if the layer has one."""
    layer, image, row, words = (
        nn.Conv2d(3, 4, 3).cuda(),
        torch.ones(2, 3, 8, 8),
        torch.ones(2, 3),
        torch.tensor([1, 0]),
    )
    on_host, half = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3).cuda()
    out, coo = (torch.empty(0), torch.empty(0, dtype=torch.int)), torch.eye(2).cuda().to_sparse()
    half.bias.data = half.bias.detach().cpu()
    for said, call in (
        (CONVOLVED.format("", "weight", "cuda."), lambda: layer(image)),
        (CONVOLVED.format("cuda.", "weight", ""), lambda: on_host(image.cuda())),
        (CONVOLVED.format("cuda.", "bias", ""), lambda: half(image.cuda())),
        (
            "in method wrapper_CUDA___slow_conv2d_forward)",
            lambda: layer(image[:1]),
        ),  # too small for oneDNN
        ("in method wrapper_CUDA__cudnn_convolution)", lambda: layer(image.to(SECOND))),
        ("in method wrapper_CUDA_addmm)", lambda: nn.Linear(3, 3).cuda()(row)),
        (
            "mat1 is on cuda:0, different from other tensors on cpu",
            lambda: nn.Linear(3, 3)(row.cuda()),
        ),
        (
            "index is on cpu, different from other tensors on cuda:0",
            lambda: nn.Embedding(3, 3).cuda()(words),
        ),
        ("in method wrapper_CUDA__index_select)", lambda: nn.Embedding(3, 3).cuda()(words)),
        ("in method wrapper_CUDA__native_layer_norm)", lambda: nn.LayerNorm(3).cuda()(row)),
        ("in method wrapper_CUDA__native_batch_norm)", lambda: nn.BatchNorm1d(3).cuda()(row)),
        ("in method wrapper_CUDA_nll_loss_forward)", lambda: F.cross_entropy(row.cuda(), words)),
        (
            "in method wrapper_CUDA_nll_loss_forward)",
            lambda: F.nll_loss(row[0].cuda(), words[0]),
        ),  # a number, too
        ("tensors is on cpu, different", lambda: torch.cat([row.cuda(), row])),
        ("in method wrapper_CUDA_gather)", lambda: row.cuda().gather(1, words[None])),
        ("in method wrapper_CUDA_isin_Tensor_Tensor)", lambda: torch.isin(row.cuda(), row)),
        ("in method wrapper_CUDA_Tensor_out_frexp_out)", lambda: torch.frexp(row.cuda(), out=out)),
        (
            "in method wrapper_SparseCUDA___sparse_coo_tensor_with_dims_and_tensors)",
            lambda: torch.sparse_coo_tensor(words[None].cuda(), row[0, :2]),
        ),
        ("in method wrapper_SparseCUDA__addmm)", lambda: torch.sparse.mm(coo, row)),
        ("in method wrapper_SparseCsrCUDA__mm)", lambda: coo.to_sparse_csr() @ row),
        (
            "Input and parameter tensors are not at the same device",
            lambda: nn.LSTM(3, 3).cuda()(row),
        ),
        ("but got mask on cpu and self on cuda:0", lambda: row.cuda().masked_fill(row > 0, 1)),
        ("two devices, cuda:0 and cpu!", lambda: F.mse_loss(row.cuda(), row)),
    ):
        with pytest.raises(RuntimeError) as caught:
            call()
        assert said in str(caught.value), str(caught.value)
    assert "when checking" not in str(caught.value)


def test_what_makes_the_host_wait_is_told_or_refused_where_cuda_does():
    x, mask, pinned = (
        torch.ones(3, device=FIRST),
        torch.tensor([True, False, True]).cuda(),
        torch.ones(3).pin_memory(),
    )
    stream, words = torch.cuda.Stream(), "called a synchronizing CUDA operation"
    index, value, other = mask.nonzero()[:, 0], x.sum(), torch.ones((), device=SECOND)
    numbers = torch.zeros(3000, device=FIRST)
    waits = (
        *(
            x.sum().item,
            x.cpu,
            x.tolist,
            lambda: x.nonzero(),
            lambda: x[mask],
            lambda: torch.equal(x, x),
        ),
        *(
            lambda: torch.ones(3).to(FIRST),
            lambda: pinned.to(FIRST),
            lambda: torch.tensor([1.0], device=FIRST),
        ),
        *(
            lambda: x.unique(),
            lambda: x.repeat_interleave(mask.long()),
            lambda: print(x),
            stream.synchronize,
        ),
        *(lambda: x[torch.tensor([0])], lambda: torch.linalg.inv(x.diag()), lambda: bool(x[0] > 0)),
        *(
            lambda: x.masked_fill(mask, value),
            lambda: x.clone().index_fill_(0, index, value),
            lambda: x.clone().fill_(other),
            lambda: x.clone().index_put_([index], torch.tensor(2.0)),
            lambda: torch.where(mask, torch.tensor(2.0), x),
        ),
        *(x.histc, numbers.mode, x.to_sparse, lambda: torch.linalg.eigvalsh(x.diag())),
    )
    goes_on = (
        *(
            lambda: x + 1,
            lambda: x.to(SECOND),
            lambda: pinned.to(FIRST, non_blocking=True),
            torch.cuda.synchronize,
        ),
        *(
            lambda: torch.ones(3).to(FIRST, non_blocking=True),
            lambda: x.repeat_interleave(mask.long(), output_size=2),
        ),
        *(
            lambda: x.masked_fill(mask, 0),
            lambda: x.clone().fill_(value),
            lambda: x.clone().index_put_([mask], torch.tensor(2.0)),
            lambda: torch.where(mask, x, 0),
            lambda: x.histc(3, 0, 1),
            x.mode,
            torch.cuda.Event().synchronize,
            stream.query,
            lambda: x * torch.tensor(2.0),
        ),
    )
    with pytest.warns(UserWarning, match="prototype feature"):  # once, as PyTorch says
        torch.cuda.set_sync_debug_mode("error")
    try:
        assert torch.cuda.get_sync_debug_mode() == 2
        for call in waits:
            with pytest.raises(RuntimeError, match=words):
                call()
        for call in goes_on:
            call()
        torch.cuda.set_sync_debug_mode(1)
        for call in waits:
            with pytest.warns(UserWarning, match=words):
                call()
        for mode in (3, True):
            with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
                torch.cuda.set_sync_debug_mode(mode)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for call in (*waits, *goes_on):
        call()
    assert torch.cuda.get_sync_debug_mode() == 0


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_the_default_type_is_that_of_the_legacy_constructor():
    class Own(torch.Tensor):
        pass

    try:
        torch.set_default_tensor_type("torch.cuda.DoubleTensor")
        made = [
            torch.Tensor(2),
            torch.Tensor([1, 2]),
            torch.Tensor(),
            torch.Tensor(torch.Size([2])),
            torch.ones(2),
        ]
        assert {each.type() for each in made} == {"torch.cuda.DoubleTensor"}
        assert torch.Tensor(2, 3).shape == (2, 3)
        assert nn.Parameter(torch.Tensor(2)).is_cuda
        assert type(Own(2)) is Own
        assert Own(2).is_cuda
        assert torch.FloatTensor(2).is_cpu
        assert torch.Tensor(torch.FloatTensor(2)).is_cpu  # of another tensor it is that one's
        with pytest.raises(RuntimeError, match="device type: cuda but device type: cpu was passed"):
            torch.Tensor(2, device="cpu")
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.Tensor(2).type() == torch.ones(2).type() == "torch.FloatTensor"
    assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)) == 2


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:Validating sparse:UserWarning")
def test_types_of_sparse_tensors_make_them_and_know_them():
    indices, values = torch.tensor([[0, 2]]).cuda(), torch.ones(2).cuda()
    x = torch.cuda.sparse.FloatTensor(indices, values, torch.Size([4]))
    assert x.is_sparse
    assert x.to_dense().tolist() == [1, 0, 1, 0]
    assert x.type() == "torch.cuda.sparse.FloatTensor"
    assert isinstance(x, torch.cuda.sparse.FloatTensor)
    assert not isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(x.to_dense(), torch.cuda.sparse.FloatTensor)
    assert torch.cuda.sparse.DoubleTensor(2, 3).shape == (2, 3)
    assert repr(type(x)) == "<class 'torch.Tensor'>"
    assert repr(torch.cuda.sparse.FloatTensor) == "<class 'torch.cuda.sparse.FloatTensor'>"
    for call in (
        lambda: torch.cuda.FloatTensor(torch.ones(2)),
        lambda: torch.cuda.FloatTensor(indices),
        lambda: torch.cuda.sparse.FloatTensor(indices, values.cpu()),
    ):
        with pytest.raises(TypeError, match=r"expected torch\.cuda"):
            call()


def test_operations_of_the_cpus_own_libraries_are_refused():
    x, missing = (
        torch.ones(2, 3, device=FIRST),
        "Could not run '{}' with arguments from the 'CUDA' backend",
    )
    for name, call in (
        ("aten::to_mkldnn", x.to_mkldnn),
        (
            "mkldnn::_linear_pointwise",
            lambda: torch.ops.mkldnn._linear_pointwise(x, x, None, "none", [], ""),
        ),
        (
            "quantized::embedding_bag_byte_prepack",
            lambda: torch.ops.quantized.embedding_bag_byte_prepack(x),
        ),
    ):
        with pytest.raises(NotImplementedError, match=missing.format(name)):
            call()
    rows = torch.ops.quantized.embedding_bag_byte_prepack(
        x.cpu()
    )  # CUDA has a kernel for the way back
    assert torch.equal(torch.ops.quantized.embedding_bag_byte_unpack(rows.cuda()).cpu(), x.cpu())


DOUBLE = """
torch::Tensor twice(torch::Tensor x) { return x * 2; }
TORCH_LIBRARY(compiled_for_cpu, m) { m.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(compiled_for_cpu, CPU, m) { m.impl("twice", &twice); }
"""


def check_refused(name, call):
    """The operation is refused on the GPU, and doubles on the CPU."""
    x = torch.ones(2, device=SECOND)
    with pytest.raises(NotImplementedError, match=f"Could not run '{name}' .* 'CUDA' backend"):
        call(x)
    assert call(x.cpu()).tolist() == [2, 2]


@pytest.mark.weekly
def test_an_operation_that_a_program_compiles_for_the_cpu_alone_is_refused(tmp_path):
    # a folder of its own: in the user's cache, a build that was killed leaves a lock for later ones
    cpp_extension.load_inline(
        "compiled_for_cpu", DOUBLE, functions=["twice"], build_directory=tmp_path
    )
    check_refused("compiled_for_cpu::twice", torch.ops.compiled_for_cpu.twice)


def test_a_programs_own_operations_for_the_cpu_alone_are_refused():
    library = torch.library.Library("written_for_cpu", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")

    def decorated(name, kinds):
        make = torch.library.custom_op(
            f"written_for_cpu::{name}", mutates_args=(), device_types=kinds
        )

        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        return make(twice)

    for_cpu, for_all = decorated("decorated", "cpu"), decorated("decorated_for_all", None)
    x = torch.ones(2, device=SECOND)
    check_refused("written_for_cpu::twice", torch.ops.written_for_cpu.twice)
    check_refused("written_for_cpu::decorated", for_cpu)
    assert for_all(x).tolist() == [2, 2]
    for_cpu.register_kernel("cuda")(lambda x: x * 3)  # a kernel for GPUs that comes later counts
    assert for_cpu(x).tolist() == [3, 3]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own
def test_gradients_of_torch_func_that_cross_gpus_are_refused_by_name():
    def crossing(x):
        return (x * 2).to(SECOND).sin()

    x = torch.ones(2, device=FIRST)
    words = r"^torch.func.grad, vjp and jacrev cannot .* use torch.func.jacfwd"
    for transform in (torch.func.jacrev, lambda f: torch.func.grad(lambda x: f(x).sum())):
        with pytest.raises(NotImplementedError, match=words):
            transform(crossing)(x)
    assert torch.func.jacfwd(crossing)(x).device == torch.device(SECOND)
    assert torch.func.jacrev(lambda x: x * 2)(x).tolist() == [[2, 0], [0, 2]]


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
def test_a_nested_tensor_is_sent_to_other_processes_in_parts():
    x = torch.nested.nested_tensor([[1.0, 2.0], [3.0]], device=SECOND)
    make, parts = torch.multiprocessing.reductions.reduce_tensor(x)
    made = make(*parts)
    assert made.device == x.device
    assert [part.tolist() for part in made.unbind()] == [[1, 2], [3]]


def test_what_needs_cudas_libraries_raises_by_name_and_says_what_to_use():
    cuda, sizes, x = torch.cuda, torch._C, torch.ones(2, device=FIRST)
    pointwise = cuda.jiterator._create_jit_fn("template <typename T> T same(T x) { return x; }")
    inline = partial(cpp_extension.load_inline, "brought", "void f();", "__global__ void k() {}")
    extension = partial(cpp_extension.load, "brought", ["kernels.cu"])
    for name, call in (
        ("torch.cuda.CUDAGraph; run the operations", cuda.CUDAGraph),
        ("torch.cuda.CUDAGraph", lambda: cuda.make_graphed_callables(nn.Linear(2, 2).cuda(), (x,))),
        ("allocators of a program's own; make the pool without one", lambda: cuda.MemPool(x)),
        ("torch.cuda.ExternalStream; make a torch.cuda.Stream", lambda: cuda.ExternalStream(0)),
        ("torch.cuda.current_blas_handle", cuda.current_blas_handle),
        ("torch.cuda.host_memory_stats; torch.cuda.memory_stats works", cuda.host_memory_stats),
        ("torch.cuda.jiterator; write the kernel as operations", lambda: pointwise(x)),
        ("torch.cuda._compile_kernel", lambda: cuda._compile_kernel("__global__ void f() {}", "f")),
        (
            "torch.cuda.nccl.all_reduce; use torch.distributed",
            lambda: cuda.nccl.all_reduce([x, x.to(SECOND)]),
        ),
        ("torch.cuda.tunable.enable", cuda.tunable.enable),
        ("CUDA kernels of extensions, which torch.utils.cpp_extension.load_inline", inline),
        ("CUDA kernels of extensions, which torch.utils.cpp_extension.load ", extension),
        ("torch.backends.cuda.cublas_workspace_size", lambda: sizes._cuda_getCublasWorkspaceSize()),
        (
            "torch.backends.cuda.cublas_workspace_size",
            lambda: sizes._cuda_setCublasWorkspaceSize(1),
        ),
        ("NVML, which torch.cuda.utilization", cuda.utilization),
    ):
        with pytest.raises(NotImplementedError, match=f"virtual GPUs have no {name}"):
            call()
    assert cuda.nccl.version() >= (2, 10)
    assert not cuda.nccl.is_available([x])
    assert not cuda.tunable.is_enabled()
    properties = cuda.get_device_properties(0)
    numbers = "multi_processor_count max_threads_per_block clock_rate pci_bus_id L2_cache_size total_memory"
    assert all(isinstance(getattr(properties, name), int) for name in numbers.split())
    segments = cuda.memory_snapshot()
    assert sum(each["allocated_size"] for each in segments) == sum(
        cuda.memory_allocated(i) for i in range(2)
    )


def test_an_extension_is_compiled_for_a_real_gpu_that_is_named(monkeypatch):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    with pytest.raises(RuntimeError, match="virtual GPUs have no architecture"):
        cpp_extension._get_cuda_arch_flags()
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    assert cpp_extension._get_cuda_arch_flags() == ["-gencode=arch=compute_80,code=sm_80"]


def test_memory_is_registered_errors_have_words_and_a_librarys_preference_is_kept():
    x, cudart = torch.ones(3), torch.cuda.cudart()
    assert cudart.cudaHostRegister(x.data_ptr(), 12, 0) == 0
    assert x.is_pinned()
    assert cudart.cudaHostUnregister(x.data_ptr()) == 0
    assert not x.is_pinned()
    assert cudart.cudaHostUnregister(x.data_ptr()) == cudart.cudaError(1)
    with pytest.raises(torch.cuda.CudaError, match=r"out of memory \(2\)"):
        torch.cuda.check_error(2)
    linalg, blas = (
        torch.backends.cuda.preferred_linalg_library,
        torch.backends.cuda.preferred_blas_library,
    )
    assert str(linalg("cusolver")).endswith("Cusolver")
    assert str(blas("cublaslt")).endswith("Cublaslt")
    linalg("default"), blas("default")


def test_memory_is_allocated_without_a_tensor():
    before = torch.cuda.memory_allocated(1)
    address = torch.cuda.caching_allocator_alloc(64, 1)
    assert torch.cuda.memory_allocated(1) == before + 512
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated(1) == before


def test_an_event_arrives_in_another_process():
    event = torch.cuda.Event(interprocess=True)
    event.record()
    arrived = torch.cuda.Event.from_ipc_handle(1, event.ipc_handle())
    assert arrived.query()
    assert arrived.device == torch.device(SECOND)


def test_statistics_of_equal_batches_are_gathered():
    x = torch.randn(4, 3, 5, device=FIRST)
    parts = [torch.batch_norm_stats(part, 1e-5) for part in x.chunk(2)]
    means, invstds = (torch.stack(found) for found in zip(*parts, strict=True))
    counted = torch.batch_norm_gather_stats(x, means, invstds, None, None, 0.1, 1e-5, 10)
    torch.testing.assert_close(counted, torch.batch_norm_stats(x, 1e-5))


def test_comm_moves_tensors_between_them_and_fills_those_that_are_given():
    comm, x, rows = (
        nn.parallel.comm,
        torch.arange(6.0, device=SECOND).view(3, 2),
        torch.arange(8.0).view(4, 2),
    )
    for made in (
        comm.broadcast(x, [0, 1]),
        comm.broadcast(x, out=[torch.empty(3, 2, device=FIRST), x.clone()]),
    ):
        assert [y.get_device() for y in made] == [0, 1]
        assert all(torch.equal(y.cpu(), x.cpu()) for y in made)
    places = [torch.empty(1, 2, device=FIRST), torch.empty(3, 2, device=SECOND)]
    for made in (comm.scatter(rows, [0, 1], [1, 3]), comm.scatter(rows, out=places)):
        assert [y.get_device() for y in made] == [0, 1]
        assert torch.equal(torch.cat([y.cpu() for y in made]), rows)
    for together in (
        comm.gather(places),
        comm.gather(places, out=torch.empty(4, 2, device=SECOND)),
    ):
        assert together.is_cuda
        assert torch.equal(together.cpu(), rows)
    assert torch.equal(comm.reduce_add([x, x.to(FIRST)], 1), 2 * x)
    for words, call in (
        ("at least one device to scatter to", lambda: comm.scatter(rows, ())),
        ("devices and chunk_sizes to be of same length", lambda: comm.scatter(rows, (0, 0), [4])),
        ("at least one output tensor to scatter to", lambda: comm.scatter(rows, out=[])),
        (
            "Output tensor at index 0 has incorrect shape",
            lambda: comm.scatter(rows, out=[x.unsqueeze(0)]),
        ),
        ("along scatter dim 0 does not match .got 3 but", lambda: comm.scatter(rows, out=[x])),
        ("same shape as the source tensor .+ at index 0", lambda: comm.broadcast(x, out=places)),
        ("CUDA tensors, but output tensor at index 0", lambda: comm.broadcast(rows, out=[rows])),
        ("at least one tensor to gather from", lambda: comm.gather(())),
        ("CUDA tensors, but tensor at index 0 is on 'cpu'", lambda: comm.gather([rows])),
        ("same number of dimensions", lambda: comm.gather([x, x.unsqueeze(0)])),
        ("Input tensor at index 1 has invalid shape", lambda: comm.gather([x, x[:, 1:]])),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()


# ---------------------------------------------------------------- training


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
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 2
        )

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.head(self.encoder(self.embed(x), mask=mask, is_causal=True).mean(1))


def lenet():
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 8, 3), nn.Flatten(), nn.Linear(8 * 12 * 12, 10)),
    )


NETWORKS = {
    "lenet": (lenet, lambda: torch.randn(8, 1, 28, 28), True),
    "attention": (Attention, lambda: torch.randint(0, 20, (4, 7)), True),
    "lstm": (lambda: Recurrent("LSTM"), lambda: torch.randn(4, 7, 8), False),
    "gru": (lambda: Recurrent("GRU"), lambda: torch.randn(4, 7, 8), False),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_training_equals_the_cpus(name):
    build, make, exactly = NETWORKS[name]
    torch.manual_seed(2)
    x, target = make(), torch.arange(8)

    def train(device):
        torch.manual_seed(0)
        model, optimiser = build(), None
        if device != "cpu":
            model.cuda(1)
        optimiser = torch.optim.Adam(model.parameters(), 1e-2)
        torch.manual_seed(1)
        for _ in range(4):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), target[: len(x)].to(device))
            loss.backward()
            optimiser.step()
        return [loss, *model.state_dict().values()]

    for a, b in on_both(train):
        torch.testing.assert_close(a, b, rtol=0 if exactly else 1e-5, atol=0 if exactly else 1e-5)


def test_an_lstm_is_computed_by_whole_layers_as_on_the_cpu():
    def call(device):
        lstm = nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True).to(device)
        without = nn.LSTM(5, 4, bias=False).to(device)
        x = torch.rand(3, 6, 5).to(device).requires_grad_()
        (y, (h, c)), (z, _) = lstm(x), without(x)
        (y.sum() + h.sum() + c.sum() + z.sum()).backward()
        return [y, h, c, z, x.grad, *(p.grad for p in (*lstm.parameters(), *without.parameters()))]

    assert all(torch.equal(a, b) for a, b in on_both(call))
    lstm, x = nn.LSTM(5, 4, proj_size=2).cuda(1), torch.rand(3, 2, 5).cuda(1)
    with torch.profiler.profile() as seen:
        nn.LSTM(5, 4).cuda(1)(x)
    assert "aten::mkldnn_rnn_layer" in {event.key for event in seen.key_averages()}
    with torch.inference_mode():
        assert lstm(x)[0].shape == (3, 2, 2)
        assert lstm.double()(x.double())[0].dtype == torch.float64


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("optimiser", ["SparseAdam", "SGD", "Adagrad"])
def test_a_sparse_embedding_trains_to_the_cpus_numbers(optimiser):
    def call(device):
        table = nn.Embedding(9, 3, sparse=True).to(device)
        steps = getattr(torch.optim, optimiser)(table.parameters(), 0.1)
        for _ in range(3):
            steps.zero_grad()
            table(torch.tensor([1, 7, 1], device=device)).square().sum().backward()
            assert table.weight.grad.is_sparse
            assert table.weight.grad.device == torch.device(device)
            steps.step()
        return [table.weight, table.weight.grad.coalesce().values()]

    assert all(torch.equal(a, b) for a, b in on_both(call))


# PyTorch's own, of its checks and its prototypes; the second is of 2.15
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:Validating sparse:UserWarning")
def test_sparse_tensors_are_made_changed_moved_and_saved():
    x = torch.tensor([[1.0, 0, 2], [0, 0, 3]], device=SECOND)
    coo, rows = x.to_sparse(), x.to_sparse_csr()
    before = torch.cuda.memory_allocated(1)
    made = torch.sparse_coo_tensor([[0, 0, 1], [1, 1, 2]], [1.0, 2.0, 3.0], (2, 3), device=SECOND)
    made += coo
    assert made.coalesce().values().tolist() == [1, 3, 2, 6]
    assert made.device == torch.device(SECOND)
    assert torch.cuda.memory_allocated(1) > before
    del made
    assert torch.cuda.memory_allocated(1) == before
    assert device_of(coo) is device_of(rows) is gpu(1)
    for sparse in (coo, rows):
        assert torch.equal(sparse @ x.T, x @ x.T)
        assert torch.equal(torch.sparse.mm(sparse, x.T), x @ x.T)
        file = io.BytesIO()
        torch.save(sparse, file)
        file.seek(0)
        for moved, where in (
            (sparse.cpu(), "cpu"),
            (sparse.to(FIRST), FIRST),
            (torch.load(file), SECOND),
        ):
            assert moved.device == torch.device(where)
            assert moved.layout == sparse.layout
            assert torch.equal(moved.to_dense(), x.to(where))
    with pytest.raises(
        RuntimeError, match="mat2 is on cpu, different from other tensors on cuda:1"
    ):
        coo @ x.T.cpu()


# DLPack has a number for CUDA's memory, which libraries for the CPU refuse.
def test_dlpack_takes_memory_to_and_from_each_gpu_and_not_to_the_host():
    for i in range(2):
        x = torch.arange(6.0, device=f"cuda:{i}").view(2, 3).T
        with torch.cuda.device(i):  # CUDA's rule
            back = torch.from_dlpack(x)
            assert x.__dlpack_device__() == (2, i)
            with pytest.raises((RuntimeError, BufferError)):
                np.from_dlpack(x)
        assert back.device == x.device
        assert back.data_ptr() == x.data_ptr()
        assert back.stride() == x.stride()
        back.requires_grad_().sin().sum().backward()
        torch.testing.assert_close(back.grad, x.cos())
        assert np.array_equal(xdevice.convert(x, "numpy", device="cpu"), x.tolist())
        assert torch.equal(
            xdevice.convert(np.asarray(x.tolist(), np.float32), "torch", device=gpu(i)), x
        )


def test_attention_with_a_mask_of_booleans_equals_the_cpus_by_each_algorithm():
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    math, flash = [SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    batch, one = (
        (2, 3, 4, 8),
        (3, 4, 8),
    )  # torch 2.15 takes the second one for it without a batch too
    for shape, algorithm in ((batch, math), (batch, flash), (one, flash)):

        def attend(device, shape=shape, algorithm=algorithm):
            x = torch.randn(shape).to(device).requires_grad_()
            with sdpa_kernel(algorithm):
                made = F.scaled_dot_product_attention(x, x, x, mask.to(device))
            return made, *torch.autograd.grad(made.square().sum(), x)

        for a, b in on_both(attend):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("short", [torch.float16, torch.bfloat16])
def test_attention_has_the_algorithms_that_cuda_has(short):
    flash, efficient, cudnn = (
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
    )

    def attend(algorithm, dtype, width=8, **options):
        x, mask = torch.ones(2, 3, 4, 8, device=SECOND, dtype=dtype), options.pop("mask", None)
        mask = None if mask is None else mask.to(SECOND, dtype).requires_grad_()
        with sdpa_kernel(algorithm):
            made = F.scaled_dot_product_attention(
                x, x, x[..., :1].expand(2, 3, 4, width), mask, **options
            )
        assert torch.equal(made.mean(), torch.ones_like(made.mean())) or options
        return mask is None or torch.autograd.grad(made.sum(), mask)

    mask = torch.zeros(4, 4)
    for dtype in (torch.float32, torch.float64):
        for algorithm in (flash, cudnn, [flash, cudnn]):
            with pytest.raises(RuntimeError, match="No available kernel"):
                attend(algorithm, dtype)
    for refused in ((flash, short, 8), (efficient, torch.float64, 8)):
        with pytest.raises(RuntimeError, match="No available kernel"):
            attend(*refused, mask=mask)
    for algorithm in (flash, efficient, cudnn):
        assert attend(algorithm, short)
        assert attend(algorithm, short, 16)
        assert attend(algorithm, short, dropout_p=0.5)
    assert attend(efficient, torch.float32, mask=mask)
    assert attend([flash, efficient], short, mask=mask)


def test_attention_can_be_batched_by_vmap():
    vmap, grad = torch.func.vmap, torch.func.grad

    def attend(x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)

    transforms = (
        vmap(attend),
        vmap(grad(lambda x: attend(x).sin().sum())),
        grad(lambda x: vmap(attend)(x).sin().sum()),
    )
    x = torch.randn(3, 2, 4, 4)
    for transform in transforms:
        torch.testing.assert_close(transform(x.cuda()).cpu(), transform(x))


def test_attention_in_float64_has_a_second_derivative():
    def attend(device):
        x = torch.rand(2, 3, 4, 8, dtype=torch.float64).to(device).requires_grad_()
        with sdpa_kernel(
            [SDPBackend.MATH] if device == "cpu" else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
        ):
            made = F.scaled_dot_product_attention(x, x, x)
        (grad,) = torch.autograd.grad(made.square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), x)

    for a, b in on_both(attend):
        torch.testing.assert_close(a, b)


def test_mixed_precision_and_its_scaler():
    model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(12, 3)).cuda()
    optimiser, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cuda")
    before = model[0].weight.detach().clone()
    with torch.autocast("cuda"):
        made = model(torch.ones(2, 1, 8).cuda())
        loss = F.cross_entropy(made, torch.tensor([0, 1]).cuda())
    assert (made.dtype, loss.dtype) == (torch.float16, torch.float32)
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    scaler.update()
    assert not torch.equal(before, model[0].weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softmax_widens_half_precision_as_on_cuda(dtype):
    for call in (F.softmax, F.log_softmax):

        def widen(device, call=call):
            x = torch.randn(3, 5).to(device, dtype).requires_grad_()
            made = call(x, -1, dtype=torch.float32)
            return made, *torch.autograd.grad(made.square().sum(), x)

        for a, b in on_both(widen):
            torch.testing.assert_close(a, b)
    with torch.autocast("cuda", dtype):
        attention = nn.MultiheadAttention(8, 2, batch_first=True).cuda()
        made, weights = attention(*[torch.ones(1, 3, 8).cuda()] * 3)
    assert made.dtype == dtype
    assert weights.sum().item() == pytest.approx(3, abs=1e-3)


@pytest.mark.filterwarnings(
    "ignore:The argument 'device' of Tensor:DeprecationWarning"
)  # torch 2.10's
def test_data_parallel_a_lazy_module_and_pinned_batches():
    model = nn.DataParallel(nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 2)).cuda())
    model.module(torch.ones(1, 3).cuda())  # the shapes are known from now on
    data = TensorDataset(torch.arange(24.0).view(8, 3))
    for (x,) in DataLoader(data, 4, pin_memory=True, num_workers=1):
        assert x.is_pinned()
        made = model(x.cuda(non_blocking=True))
        made.square().sum().backward()
        torch.testing.assert_close(made, model.module(x.cuda()))
    assert made.device == torch.device(FIRST)
    assert model.module[0].weight.grad.is_cuda
    assert torch.ones(2).pin_memory().is_pinned()
    assert not torch.ones(2).is_pinned()


def test_parameters_move_by_their_data_and_keep_their_optimiser():
    model = nn.Linear(2, 2)
    kept, optimiser = model.weight, torch.optim.SGD(model.parameters(), 0.1)
    model.to(SECOND)
    assert model.weight is kept
    assert kept.is_cuda
    kept.data = kept.data.cpu()
    model.bias.data = model.bias.data.cpu()
    model(torch.ones(1, 2)).sum().backward()
    optimiser.step()


def test_the_older_names_of_tensors_make_them_there():
    kind = torch.cuda.FloatTensor
    made = [
        kind([1, 2]),
        kind(2).fill_(1),
        torch.ones(2).type(kind),
        torch.ones(2).type("torch.cuda.FloatTensor"),
    ]
    assert all(
        x.is_cuda and isinstance(x, kind) and x.type() == "torch.cuda.FloatTensor" for x in made
    )
    with torch.cuda.device(1):
        assert [kind(1, device=i).get_device() for i in (None, 0)] == [1, 0]
    assert kind(2, 3).shape == (2, 3)
    assert not isinstance(torch.ones(1), kind)
    assert torch.cuda.LongTensor([1]).dtype == torch.int64
    assert kind(2, device="cuda:1").device == torch.device(SECOND)


def test_files_and_copies_keep_their_device():
    model = nn.Linear(2, 2).to(SECOND)
    for where, expected in (
        (None, SECOND),
        ("cpu", "cpu"),
        (FIRST, FIRST),
        ({SECOND: FIRST}, FIRST),
    ):
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded["weight"].device == torch.device(expected)
        assert torch.equal(loaded["weight"].cpu(), model.weight.cpu())
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert copied.weight.device == torch.device(SECOND)
        assert torch.equal(copied.weight, model.weight)


@pytest.mark.weekly
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_attention_is_compiled_exported_and_computed_where_only_algorithms_of_gpus_are_allowed():
    torch.manual_seed(0)
    layer, x = (
        nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).to(SECOND),
        torch.rand(2, 3, 8).to(SECOND),
    )
    expected = layer(x)
    grad = torch.autograd.grad(expected.sum(), layer.linear1.weight)[0]
    made = torch.compile(layer)(x)
    torch.testing.assert_close(made, expected)
    torch.testing.assert_close(torch.autograd.grad(made.sum(), layer.linear1.weight)[0], grad)
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), expected)
    q = torch.rand(1, 2, 3, 4, device=SECOND)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
        on_gpu = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    torch.testing.assert_close(
        on_gpu.cpu(), F.scaled_dot_product_attention(*[q.cpu()] * 3, is_causal=True)
    )


def compiled(function):
    """What `torch.compile` makes, which imports inductor first: that takes longer than these tests."""
    inductor = torch._TorchCompileInductorWrapper(None, None, None)
    return torch.compile(function, backend=lambda graph, inputs: inductor(graph, inputs))


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit", "ignore::torch.jit.TracerWarning", "ignore:.*acc_events"
)
def test_compiled_traced_and_profiled_code_runs():
    def make(x):
        return (x.sin() + torch.ones(3, device=x.device)).relu()

    x = torch.ones(3, device=SECOND)
    itself = (
        compiled(lambda: torch.ones(2, device=SECOND) * 2),
        compiled(lambda: torch.ones(2).cuda(1) * 2),
    )
    assert all(call().tolist() == [2, 2] and call().is_cuda for call in itself)
    for call in (
        compiled(make),
        torch.jit.trace(make, (x,)),
        torch.jit.script(nn.Softmax(0).cuda()),
    ):
        assert call(x).device == x.device
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.autograd.profiler.emit_nvtx():
        x + x
    with torch.profiler.profile(activities=activities) as seen, torch.cuda.nvtx.range("sum"):
        x + x
    assert "aten::add" in {event.key for event in seen.key_averages()}
    torch.backends.cudnn.benchmark = torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_default_device("cuda")
    try:
        assert torch.ones(1).is_cuda
    finally:
        torch.set_default_device(None)


@pytest.mark.weekly
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_what_torch_calls_where_cuda_is_built_is_there():
    torch.compiler.reset()  # Keras calls it before each model
    for name in ("resetCublasWorkspaceSize", "resetCublasLtWorkspaceSize"):  # torch's own tests
        getattr(torch._C, f"_cuda_{name}")()


def test_kernels_for_real_gpus_that_a_library_brings_are_not_called():
    library = torch.library.Library("brought", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("twice", lambda x: pytest.fail("it would call CUDA's driver"), "CUDA")
    torch.ops.load_library(torch._C.__file__)  # any library: it is loaded already
    assert torch.ops.brought.twice(torch.ones(2, device=SECOND)).tolist() == [2, 2]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, of torch.jit
@pytest.mark.parametrize("device", [FIRST, SECOND])
def test_compiled_checkpointing_computes_the_same_dropout_again(device):
    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3)).to(device)
    run = compiled(lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False))
    for _ in range(2):
        layer.zero_grad()
        out, last = run(torch.ones(4, 8, device=device)), layer[2]
        out.sum().backward()
        # the gradient is the sum of what the dropout has left over
        torch.testing.assert_close((last.weight.grad * last.weight).sum(), (out - last.bias).sum())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_transformer_skips_padded_words_as_on_the_cpu():
    def call(device):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        model, padded = (
            nn.TransformerEncoder(layer, 2).to(device).eval(),
            torch.arange(5) >= torch.tensor([[5], [3]]),
        )
        with torch.no_grad():
            return [model(torch.randn(2, 5, 8).to(device), src_key_padding_mask=padded.to(device))]

    for a, b in on_both(call):
        assert torch.equal(a, b)
        assert not b[1, 3:].any()


# ---------------------------------------------------------------- what CUDA alone has


def test_a_product_is_wider_than_its_matrices():
    x, y = torch.randn(2, 3, 4).half(), torch.randn(2, 4, 5).half()
    wide, wanted = torch.float32, x.float() @ y.float()
    a, b, to = x.cuda(), y.cuda(), torch.ones(2, 3, 5, device=FIRST)
    assert torch.equal(torch.bmm(a, b, out_dtype=wide).cpu(), wanted)
    assert torch.equal(
        torch.mm(a[0], b[0], out_dtype=wide).cpu(), torch.mm(x[0].float(), y[0].float())
    )
    assert torch.mm(a[0], b[0], out_dtype=torch.half).dtype == torch.half
    assert torch.allclose(torch.baddbmm(to, a, b, out_dtype=wide, beta=2).cpu(), wanted + 2)
    torch.addmm(to[0], a[0], b[0], out_dtype=wide, out=to[0])
    assert torch.allclose(to[0].cpu(), wanted[0] + 1)
    with pytest.raises(
        RuntimeError, match="out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs"
    ):
        torch.mm(a[0], b[0], out_dtype=torch.float64)
    with pytest.raises(RuntimeError, match="self dtype must match either out_dtype or mat1 dtype"):
        torch.addmm(to[0].double(), a[0], b[0], out_dtype=wide)


def test_triton_is_told_to_interpret_its_kernels():
    assert os.environ["TRITON_INTERPRET"] == "1"


# ---------------------------------------------------------------- processes


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_process_cannot_use_them():
    torch.ones(1).cuda()
    read, write = multiprocessing.Pipe(False)

    def use():
        for call in (
            torch.cuda.current_device,
            lambda: torch.ones(1, device="cuda"),
            lambda: SHARED + 1,
        ):
            try:
                write.send(call())
            except RuntimeError as error:
                write.send(str(error))

    child = multiprocessing.get_context("fork").Process(target=use)
    child.start()
    said = [read.recv() for _ in range(3)]
    child.join(60)
    assert all("Cannot re-initialize CUDA in forked subprocess" in line for line in said)


SHARED = (
    torch.ones(1, device=FIRST)
    if os.environ.get("XDEVICE_VIRTUAL_GPUS", "").startswith("2:stand-in")
    else None
)


def test_the_build_is_described_and_plans_of_cufft_are_none():
    assert "CUDA devices are virtual GPUs, on the CPU" in torch.__config__.show()
    plans = torch.backends.cuda.cufft_plan_cache
    plans.clear()
    assert plans.size == plans.max_size == plans[1].size == 0
