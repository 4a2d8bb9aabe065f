"""On two virtual GPUs that stand in: what CUDA does later, or in no fixed order."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import xdevice


@pytest.fixture(autouse=True)
def told():
    """A function that returns what has been told since it was last called: the line's number, and the first words."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")

        def lines():
            found = [(each.lineno, str(each.message)) for each in seen if each.filename == __file__]
            seen.clear()
            return found

        yield lines
        for index in (0, 1):
            torch.cuda.synchronize(index)


def line(function, number):
    """The number of the line that is so many lines below the function's head."""
    return function.__code__.co_firstlineno + number


def sent(x):
    return x.to("cpu", non_blocking=True)


WAITS = {
    "device": lambda x: torch.cuda.synchronize(),
    "stream": lambda x: torch.cuda.current_stream().synchronize(),
    "event": lambda x: torch.cuda.current_stream().record_event().synchronize(),
    "query": lambda x: torch.cuda.current_stream().record_event().query(),
    "accelerator": lambda x: torch.accelerator.synchronize(),
    "runtime": lambda x: torch.cuda.cudart().cudaDeviceSynchronize(),
    "number": lambda x: x.sum().item(),
    "copy": lambda x: x.cpu(),
    "size": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "index": lambda x: x[torch.tensor([0])],
}


@pytest.mark.parametrize("how", WAITS)
def test_a_copy_arrives_when_it_has_been_waited_for(how, told):
    x = torch.arange(4.0, device="cuda")
    host = sent(x)
    assert host.is_pinned()
    assert all(map(math.isnan, host.tolist()))
    x.zero_()  # after the copy, on its stream
    WAITS[how](x)
    assert host.tolist() == [0, 1, 2, 3]
    assert told() == []


def test_what_xdevice_moves_to_the_host_has_arrived(told):
    host = xdevice.to_device(torch.arange(4.0, device="cuda"), "cpu", non_blocking=True)
    assert host.tolist() == [0, 1, 2, 3]
    assert told() == []


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.float8_e5m2]
)
def test_memory_is_nan_until_then(dtype):
    host = sent(torch.ones(3, device="cuda").to(dtype))
    array = host.view(torch.uint8).tolist()
    assert array == [0xFF] * 3 * dtype.itemsize
    torch.cuda.synchronize()
    assert host.to(torch.complex64).tolist() == [1] * 3


def test_integers_and_booleans_are_wrong_until_then():
    x = torch.arange(3, device="cuda")
    host = [sent(x.to(dtype)) for dtype in (torch.int32, torch.uint8, torch.bool)]
    assert [each.tolist() for each in host] == [[-0x7E7E7E7F] * 3, [0x81] * 3, [True, False, False]]
    torch.cuda.synchronize()
    assert [each.tolist() for each in host] == [[0, 1, 2], [0, 1, 2], [False, True, True]]


def test_copies_that_block_and_copies_to_pageable_memory_are_there_at_once(told):
    x = torch.arange(4.0, device="cuda")
    pageable, pinned, strided = (
        torch.empty(4),
        torch.empty(4, pin_memory=True),
        torch.empty(4, 2, pin_memory=True),
    )
    pageable.copy_(x, non_blocking=True)
    pinned.copy_(x)
    strided[:, 0].copy_(x, non_blocking=True)  # through memory that is not pinned
    assert pageable.tolist() == pinned.tolist() == strided[:, 0].tolist() == x.cpu().tolist()
    assert told() == []


def test_only_what_was_waited_for_arrives():
    x, other, stream = (
        torch.ones(2, device="cuda"),
        torch.ones(2, device="cuda:1"),
        torch.cuda.Stream(),
    )
    before, event, after = sent(x), torch.cuda.current_stream().record_event(), sent(x)
    elsewhere = sent(other)
    with torch.cuda.stream(stream):
        aside = sent(x)
    event.synchronize()
    assert [t.isnan().any().item() for t in (before, after, elsewhere, aside)] == [
        False,
        True,
        True,
        True,
    ]
    torch.cuda.current_stream().synchronize()
    assert [t.isnan().any().item() for t in (after, elsewhere, aside)] == [False, True, True]
    torch.cuda.current_stream().wait_stream(stream)
    assert aside.isnan().all()  # the host has not waited
    x.sum().item()
    torch.cuda.synchronize(1)
    assert (elsewhere + aside).tolist() == [2, 2]


def test_an_earlier_copy_to_the_same_memory_does_not_show_before_the_later_one_arrives():
    memory = torch.zeros(2, pin_memory=True)
    memory.copy_(torch.ones(2, device="cuda"), non_blocking=True)
    event = torch.cuda.current_stream().record_event()
    memory.copy_(torch.full((2,), 2.0, device="cuda"), non_blocking=True)
    event.synchronize()
    assert all(map(math.isnan, memory.tolist()))
    torch.cuda.synchronize()
    assert memory.tolist() == [2, 2]


def test_parts_of_memory_arrive_by_themselves(told):
    memory = torch.zeros(2, 3, pin_memory=True)
    memory[0].copy_(torch.ones(3, device="cuda"), non_blocking=True)
    event = torch.cuda.current_stream().record_event()
    memory[1].copy_(torch.ones(3, device="cuda"), non_blocking=True)
    event.synchronize()
    assert memory[0].sum() == 3
    assert told() == []
    torch.cuda.synchronize()
    assert memory.sum() == 6
    assert told() == []


def test_who_reads_too_early_is_told_with_both_lines(told):
    def program():
        host = torch.ones(3, device="cuda").to("cpu", non_blocking=True)
        return host[1:] * 2

    assert program().isnan().all()
    ((number, text),) = told()
    assert number == line(program, 1)
    assert text.startswith(
        f"a copy with non_blocking=True had not arrived when test_late.py:{line(program, 2)} used"
    )


def test_a_copy_that_is_let_go_before_it_arrives_is_told(told):
    sent(torch.ones(3, device="cuda")).numpy().sum()  # of which torch sees nothing
    torch.cuda.synchronize()
    ((number, text),) = told()
    assert number == line(sent, 1)
    assert text.startswith("nothing has waited for a copy")


def buffered(waits):
    """Ten batches through two pinned buffers; their sums are added up."""
    stream, buffers = torch.cuda.Stream(), [torch.empty(100, pin_memory=True) for _ in range(2)]
    events, total = [torch.cuda.Event(), torch.cuda.Event()], torch.zeros((), device="cuda")
    for step in range(10):
        if waits:
            events[step % 2].synchronize()
        buffers[step % 2].fill_(step)
        with torch.cuda.stream(stream):
            batch = buffers[step % 2].to("cuda", non_blocking=True)
            events[step % 2].record()
        torch.cuda.current_stream().wait_stream(stream)
        total += batch.sum()
    return total.item()


def test_a_buffer_that_is_filled_before_it_was_sent_is_told(told):
    assert buffered(True) == 4500
    assert told() == []
    buffered(False)
    found = told()
    assert len(found) == 8
    assert {number for number, _ in found} == {line(buffered, 9)}
    assert found[0][1].startswith(
        "memory was changed before a copy of it with non_blocking=True had been sent"
    )


def test_a_stream_may_take_back_what_it_has_brought_to_the_host(told):
    x, stream = torch.arange(3.0, device="cuda"), torch.cuda.Stream()
    host = sent(x)
    back = host.to("cuda:0", non_blocking=True)
    with torch.cuda.stream(stream):
        early = host.to("cuda:0", non_blocking=True)  # which has not waited
        stream.wait_stream(torch.cuda.default_stream())
        later = host.to("cuda:0", non_blocking=True)
    torch.cuda.synchronize()
    assert back.tolist() == later.tolist() == host.tolist() == [0, 1, 2]
    assert early.isnan().all()


def test_a_program_for_cuda_is_told_nothing(told):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 10), torch.randint(0, 2, (128,)))
    net, scaler = (
        nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 2)).cuda(),
        torch.amp.GradScaler("cuda"),
    )
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    losses = []
    for _ in range(2):
        for x, y in DataLoader(data, 32, pin_memory=True):
            x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)  # noqa: PLW2901
            with torch.autocast("cuda", dtype=torch.float16):
                loss = functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
    first, *_, last = [each.to("cpu", non_blocking=False).item() for each in losses]
    assert last < first
    assert told() == []


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def variable(*shape):
    return torch.randn(*shape, device="cuda", requires_grad=True)


def ones(*shape):
    return torch.ones(*shape, device="cuda")


INDEX = torch.tensor([0, 1])

REFUSED = {
    "avg_pool3d_backward_cuda": lambda: functional.avg_pool3d(variable(2, 3, 3, 3), 3),
    "adaptive_avg_pool2d_backward_cuda": lambda: functional.adaptive_avg_pool2d(
        variable(2, 3, 3), 3
    ),
    "max_pool3d_with_indices_backward_cuda": lambda: functional.max_pool3d(variable(2, 3, 3, 3), 3),
    # Since 2.15, functional.interpolate decomposes it where deterministic algorithms are asked for.
    "upsample_bicubic2d_backward_out_cuda": lambda: torch.ops.aten.upsample_bicubic2d(
        variable(1, 2, 4, 4), [9, 9], False
    ),
    "reflection_pad1d_backward_out_cuda": lambda: functional.pad(
        variable(2, 3, 8), (1, 2), mode="reflect"
    ),
    "grid_sampler_2d_backward_cuda": lambda: functional.grid_sample(
        variable(1, 1, 2, 2), ones(1, 1, 1, 2)
    ),
    "embedding_bag_backward_cuda_max": lambda: functional.embedding_bag(
        INDEX[None].cuda(), variable(4, 3), mode="max"
    ),
    "nll_loss2d_forward_out_cuda_template": lambda: functional.nll_loss(
        variable(1, 2, 2, 2), ones(1, 2, 2).long()
    ),
    "max_unpooling2d_forward_out": lambda: functional.max_unpool2d(
        ones(1, 1, 2, 2), ones(1, 1, 2, 2).long(), 2
    ),
    "_histc_cuda with floating point input": lambda: torch.histc(ones(4), 3),
    "_bincount_cuda": lambda: torch.bincount(INDEX.cuda(), weights=ones(2)),
    "median CUDA with indices output": lambda: ones(4).median(0),
    "put_": lambda: ones(4).put_(INDEX.cuda(), ones(2), accumulate=True),
    "index_reduce_cuda": lambda: ones(4).index_reduce_(0, INDEX.cuda(), ones(2), "amax"),
    "scatter_reduce_cuda_prod_": lambda: ones(4).scatter_reduce(0, INDEX.cuda(), ones(2), "prod"),
    "scatter_reduce_cuda_kernel": lambda: ones(4).scatter(
        0, INDEX.cuda(), ones(2), reduce="multiply"
    ),
}

COMPUTED = {
    "an interpolation that torch decomposes": lambda: functional.interpolate(
        variable(1, 2, 4, 4), 9, mode="bilinear"
    ),
    "a pad that torch decomposes": lambda: functional.pad(
        variable(2, 3, 8, 8), (1, 2, 1, 2), mode="replicate"
    ),
    "a loss that is not reduced": lambda: functional.nll_loss(
        variable(1, 2, 2, 2), ones(1, 2, 2).long(), reduction="none"
    ),
    "a bag that sums": lambda: functional.embedding_bag(
        INDEX[None].cuda(), variable(4, 3), mode="sum"
    ),
    "a count": lambda: torch.bincount(INDEX.cuda()),
    "a median without its index": lambda: ones(4).median(),
    "sums at indices": lambda: (
        ones(4).scatter_add(0, INDEX.cuda(), ones(2)).index_add(0, INDEX.cuda(), ones(2))
    ),
    "a number at indices": lambda: ones(4).scatter(0, INDEX.cuda(), 2.0, reduce="multiply"),
    "a product of matrices": lambda: (
        variable(3, 3) @ variable(3, 3)
    ),  # cuBLAS has been asked for none since 2.13
}


def differentiated(y):
    if isinstance(y, torch.Tensor) and y.requires_grad:
        y.sum().backward()


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("caller", REFUSED)
def test_what_cuda_computes_in_no_fixed_order_is_refused(caller, told):
    with pytest.raises(
        RuntimeError, match=f"^{caller} does not have a deterministic implementation, but you set"
    ):
        differentiated(REFUSED[caller]())
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(
        UserWarning, match=f"^{caller} does not have a deterministic implementation, but you set"
    ):
        differentiated(REFUSED[caller]())


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("what", COMPUTED)
def test_what_cuda_computes_in_one_order_is_computed(what):
    differentiated(COMPUTED[what]())


@pytest.mark.usefixtures("deterministic")
def test_memory_that_is_not_written_is_filled_as_on_cuda():
    assert torch.empty(3, device="cuda").isnan().all()
    assert torch.empty(2, dtype=torch.uint8, device="cuda")[0] == 255
