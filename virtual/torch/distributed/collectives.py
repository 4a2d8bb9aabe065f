"""Collectives of ``torch.distributed`` on virtual GPUs: gloo reads and writes their memory as the host's.

torch sends every collective through an operation of the dispatcher, such as ``c10d::allreduce_``. Those for virtual
GPUs are replaced by kernels that call the same operation on CPU tensors that share the memory, with the backend that
the group has for virtual GPUs. What NCCL computes and gloo does not is put together from what gloo has.
"""

import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.private_names import core, in_place_of, kernels_of, untraced
from xdevice.virtual.torch.runtime import in_use

Tensor = torch.Tensor
_operations: Any = torch.ops.c10d
_CPU = torch.device("cpu")

Check = Callable[[str, Any, tuple[Any, ...]], None]
"""Raises the error that NCCL would for this operation of ``c10d``."""


def replace(check: Check | None) -> None:
    """Replace torch's kernels, futures, and what coalesces collectives; ``check`` raises NCCL's errors."""
    _replace_futures()
    _replace_coalescing()
    ours, key = kernels_of("c10d"), runtime.dispatch_key()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its own kernels are replaced
        for full in core._dispatch_get_registrations_for_dispatch_key(key):
            space, _, name = full.partition("::")
            if space == "c10d":
                ours.impl(name, untraced(_kernel(name, check)), key, allow_override=True)


def _kernel(name: str, check: Check | None) -> Callable[..., Any]:
    """The collective on CPU tensors in the virtual ones' memory."""
    plain: Any = getattr(_operations, name).default
    run: Any = _BY_HAND.get(name, plain)
    returns_tensors = len(plain._schema.returns) > 1
    names = [argument.name for argument in plain._schema.arguments]
    if "process_group" not in names:  # check_for_nan, new in PyTorch 2.15
        return lambda *args: plain(*map(_to_host, args))
    at = names.index("process_group")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        group = dist.ProcessGroup.unbox(args[at])
        backend = group._get_backend(torch.device(in_use().name))
        if check is not None and group.name() == "nccl":
            check(name, group, args)
        here = [_mapped(_flat if name in _WHOLE else _to_host, arg) for arg in args]
        here[at] = _on_cpu(group, backend)
        if name == "reduce_" and group.rank() != args[names.index("root_rank")]:
            here[0] = [
                tensor.clone() for tensor in here[0]
            ]  # gloo computes in them, and NCCL leaves them as they are
        averages = "reduce_op" in names and _adapt(here, names)
        result = run(*here, **kwargs)
        work = result[1] if returns_tensors else result
        if averages:
            work = _averaged(work, here[0], group.size())
        if _coalesced:
            _coalesced.get(group.group_name, _Together()).append(dist.Work.unbox(work))
        return (args[0], work) if returns_tensors else work

    return kernel


def _on_cpu(group: Any, backend: Any) -> Any:
    """The group with its backend for virtual GPUs as the CPU's, for one operation."""
    make: Any = dist.ProcessGroup
    twin = make(group.rank(), group.size())
    twin.bound_device_id = group.bound_device_id  # which the backend takes over
    twin._set_group_name(group.group_name)
    twin._register_backend(_CPU, dist.ProcessGroup.BackendType.GLOO, backend)
    return twin.boxed()


_WHOLE = {f"{name}_" for name in ("_allgather_base", "_reduce_scatter_base")} | {
    f"{name}_coalesced_" for name in ("allgather_into_tensor", "reduce_scatter_tensor")
}
"""Collectives of one tensor for all processes: NCCL ignores its shape, and gloo splits its first dimension."""


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(change, item) for item in value)
    return change(value) if isinstance(value, Tensor) else value


def _to_host(tensor: Tensor) -> Any:
    if tensor.device.type != in_use().name:
        return tensor
    alias: Any = torch.ops.xdevice_virtual.host(tensor.detach())
    alias._virtual = tensor.detach()  # for those who ask the future for its value
    return alias


def _flat(tensor: Tensor) -> Any:
    host = _to_host(tensor)
    return host.view(-1) if host.is_contiguous() else host


def _to_virtual(value: Any) -> Any:
    return _mapped(lambda tensor: getattr(tensor, "_virtual", tensor), value)


def _replace_futures() -> None:
    """The value of a collective's future are the virtual tensors: hooks of DistributedDataParallel compute with it."""
    in_place_of("torch.distributed:Work.result")(lambda result, self: _to_virtual(result(self)))

    @in_place_of("torch.distributed:Work.get_future")
    def get_future(future: Any, self: Any) -> Any:
        return future(self).then(lambda done: _to_virtual(done.value()))


class _Together(list[Any]):
    """All the work of such a block, which gloo has begun one by one."""

    def wait(self, *timeout: Any) -> bool:
        for work in self:
            work.wait(*timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self)


_coalesced: dict[str, _Together] = {}
"""The work begun within a block that coalesces collectives, by the name of its group."""


def _replace_coalescing() -> None:
    """Let groups coalesce collectives on virtual GPUs, as NCCL's do, and gloo's do not."""

    @in_place_of("torch.distributed:ProcessGroup._start_coalescing")
    def start_coalescing(begin: Any, self: Any, device: torch.device) -> None:
        if torch.device(device).type != in_use().name:
            begin(self, device)
        else:
            _coalesced[self.group_name] = _Together()

    @in_place_of("torch.distributed:ProcessGroup._end_coalescing")
    def end_coalescing(end: Any, self: Any, device: torch.device) -> Any:
        works = _coalesced.pop(self.group_name, None)
        return end(self, device) if works is None else works


_AVERAGE = 1  # as c10d::ReduceOp::RedOpType numbers it
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def _adapt(args: list[Any], names: Sequence[str]) -> bool:
    """Replace PREMUL_SUM, and AVG of integers, by a sum; returns whether the results are then to be divided."""
    at, in_place = names.index("reduce_op"), "tensors" in names
    kind, factor, sums = torch.ops.xdevice_virtual.reduction(args[at])
    if factor is not None:
        given = next(i for i, name in enumerate(names) if name.startswith(("tensor", "input")))
        args[given] = _mapped(
            lambda x: x.mul_(factor.to(x)) if in_place else x * factor.to(x), args[given]
        )
    first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
    averages = kind == _AVERAGE and first.dtype in _INTEGERS
    if averages or kind != _AVERAGE:
        args[at] = sums
    return averages


def _averaged(work: Any, results: Any, size: int) -> Any:
    """The work of an average, done: waiting once more for that of the sum would bring back the sum."""
    dist.Work.unbox(work).wait()
    done = torch.futures.Future[Any]()
    done.set_result(_mapped(lambda x: x.div_(size, rounding_mode="trunc"), results))
    return _work(done)


def _all_of(works: Sequence[Any], then: Callable[[], Any]) -> Any:
    """The work that is done when all is, and what comes after it."""
    futures = [dist.Work.unbox(work).get_future() for work in works]
    return _work(torch.futures.collect_all(futures).then(lambda _: then()))


def _work(done: Any) -> Any:
    return core._distributed_c10d._create_work_from_future(done).boxed()


def _all_gather(outputs: Any, inputs: Any, group: Any, *options: Any) -> Any:
    """Gather tensors; where sizes differ, each process sends its own to all in turn, as NCCL does."""
    if len({part.shape for part in outputs[0]}) == 1:
        return _operations.allgather_.default(outputs, inputs, group, *options)
    outputs[0][dist.ProcessGroup.unbox(group).rank()].copy_(inputs[0])
    send = _operations.broadcast_.default
    works = [send([part], group, root, 0, *options)[1] for root, part in enumerate(outputs[0])]
    return outputs, _all_of(works, lambda: outputs)


def _all_to_all(outputs: Any, inputs: Any, group: Any, *options: Any) -> tuple[Any, Any]:
    """Exchange tensors, each of its own size, as parts of one."""
    sizes = [[part.numel() for part in parts] for parts in (outputs, inputs)]
    sent = torch.cat([part.reshape(-1) for part in inputs])
    received = sent.new_empty(sum(sizes[0]))
    work = _operations.alltoall_base_.default(received, sent, group, *sizes, *options)

    def hand_out() -> Any:
        for part, values in zip(outputs, torch.split(received, sizes[0]), strict=True):
            part.copy_(values.view_as(part))
        return outputs

    return outputs, _all_of([work], hand_out)


_messages: dict[Any, deque[tuple[Callable[..., Any], Tensor, Any]]] = defaultdict(deque)
"""Those of this process to itself that wait for their other end, by group and tag."""


def _message(pass_on: Any) -> Callable[..., Any]:
    """A message; gloo has no connection of a process to itself."""

    def message(tensors: Any, boxed: Any, peer: int, tag: int) -> Any:
        group, tensor, done = (
            dist.ProcessGroup.unbox(boxed),
            tensors[0],
            torch.futures.Future[Any](),
        )
        if peer != group.rank():
            return pass_on(tensors, boxed, peer, tag)
        sends, waiting = pass_on is _operations.send.default, _messages[group.group_name, tag]
        if waiting and waiting[0][0] is not pass_on:
            _, other, arrived = waiting.popleft()
            (other if sends else tensor).copy_(tensor if sends else other)
            if not arrived.done():
                arrived.set_result(None)
            done.set_result(None)
        else:
            waiting.append((pass_on, tensor.clone() if sends else tensor, done))
            if sends:
                done.set_result(None)
        return _work(done)

    return message


_BY_HAND: dict[str, Callable[..., Any]] = {"allgather_": _all_gather, "alltoall_": _all_to_all} | {
    name: _message(getattr(_operations, name).default) for name in ("send", "recv_")
}
