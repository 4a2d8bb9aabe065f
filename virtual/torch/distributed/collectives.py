"""Collectives of ``torch.distributed`` on virtual GPUs: gloo runs them in the host's memory.

torch sends every collective through an operation of the dispatcher, such as ``c10d::allreduce_``.
The kernels for virtual GPUs are replaced by ones that call the same operation on CPU tensors that
share the memory, with the group's backend for virtual GPUs. Collectives that NCCL has and gloo
lacks are composed of those that gloo has.
"""

import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.distributed import communicators
from xdevice.virtual.torch.private_names import Function, core, in_place_of, kernels_of, untraced
from xdevice.virtual.torch.runtime import in_use

Tensor = torch.Tensor
_operations: Any = torch.ops.c10d
_CPU = torch.device("cpu")

ProcessGroup = Any
"""A `dist.ProcessGroup`; its private methods are unknown to type checkers."""

BoxedGroup = Any
"""A process group as the operations of ``c10d`` take it, a `torch.ScriptObject`."""

BoxedWork = Any
"""A `dist.Work` as the operations of ``c10d`` return it, a `torch.ScriptObject`."""

Check = Callable[[str, ProcessGroup, tuple[Any, ...]], None]
"""Raises NCCL's error for an operation of ``c10d``, its group and its arguments."""


def replace(check: Check | None) -> None:
    """Replace torch's kernels, futures and coalescing; ``check`` raises NCCL's errors."""
    _replace_futures()
    _replace_coalescing()
    kernels = kernels_of("c10d")
    key = runtime.dispatch_key()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that its own kernels are replaced
        for operation in core._dispatch_get_registrations_for_dispatch_key(key):
            namespace, _, name = operation.partition("::")
            if namespace == "c10d":
                kernels.impl(name, untraced(_kernel(name, check)), key, allow_override=True)


def _kernel(name: str, check: Check | None) -> Function:
    """The collective on CPU tensors that share the memory of the virtual ones."""
    operation: Any = getattr(_operations, name).default
    run: Any = _COMPOSED.get(name, operation)
    returns_tensors = len(operation._schema.returns) > 1
    parameters = [argument.name for argument in operation._schema.arguments]
    if "process_group" not in parameters:  # check_for_nan, new in PyTorch 2.15
        return lambda *args: operation(*map(_to_host, args))
    group_position = parameters.index("process_group")
    convert = _to_flat_host if name in _OF_ONE_TENSOR else _to_host

    def kernel(*args: Any, **kwargs: Any) -> Any:
        group = dist.ProcessGroup.unbox(args[group_position])
        backend = group._get_backend(torch.device(in_use().name))
        if _is_of_nccl(group):
            if check is not None:
                check(name, group, args)
            communicators.note(name, group, args)
        host_args = [_mapped(convert, arg) for arg in args]
        host_args[group_position] = _group_for_cpu(group, backend)
        if name == "reduce_" and group.rank() != args[parameters.index("root_rank")]:
            # gloo overwrites the tensors of all ranks, and NCCL those of the root only
            host_args[0] = [tensor.clone() for tensor in host_args[0]]
        divides = "reduce_op" in parameters and _replace_reduction(host_args, parameters)
        result = run(*host_args, **kwargs)
        work = result[1] if returns_tensors else result
        if divides:
            work = _divided(work, host_args[0], group.size())
        if _coalesced:
            _coalesced.get(group.group_name, _CoalescedWork()).append(dist.Work.unbox(work))
        return (args[0], work) if returns_tensors else work

    return kernel


def _is_of_nccl(group: Any) -> bool:
    """Whether NCCL would compute for the group; its type is custom under a name such as nccl2."""
    return group.name() == "nccl" or dist.get_backend(group).startswith("nccl")


def _group_for_cpu(group: ProcessGroup, backend: Any) -> BoxedGroup:
    """A group for one operation on CPU tensors, with the group's backend for virtual GPUs."""
    new_group: Any = dist.ProcessGroup
    cpu_group = new_group(group.rank(), group.size())
    cpu_group.bound_device_id = group.bound_device_id  # registering copies it to the backend
    cpu_group._set_group_name(group.group_name)
    cpu_group._register_backend(_CPU, dist.ProcessGroup.BackendType.GLOO, backend)
    return cpu_group.boxed()


_OF_ONE_TENSOR = {
    "_allgather_base_",
    "_reduce_scatter_base_",
    "allgather_into_tensor_coalesced_",
    "reduce_scatter_tensor_coalesced_",
}
"""Collectives whose one tensor has the parts of all processes.

NCCL ignores the tensor's shape, and gloo splits its first dimension.
"""


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The function of each tensor in the value."""
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(function, item) for item in value)
    return function(value) if isinstance(value, Tensor) else value


def _to_host(tensor: Tensor) -> Tensor:
    if tensor.device.type != in_use().name:
        return tensor
    alias: Any = torch.ops.xdevice_virtual.host(tensor.detach())
    alias._virtual = tensor.detach()  # which `_to_virtual` returns
    return alias  # type: ignore[no-any-return]  # torch does not annotate its operations


def _to_flat_host(tensor: Tensor) -> Tensor:
    host = _to_host(tensor)
    return host.view(-1) if host.is_contiguous() else host


def _to_virtual(value: Any) -> Any:
    return _mapped(lambda tensor: getattr(tensor, "_virtual", tensor), value)


def _replace_futures() -> None:
    """Make futures of collectives return virtual tensors, which DDP's hooks compute with."""

    @in_place_of("torch.distributed:Work.result")
    def result(native: Function, self: dist.Work) -> Any:
        return _to_virtual(native(self))

    @in_place_of("torch.distributed:Work.get_future")
    def get_future(native: Function, self: dist.Work) -> Any:
        return native(self).then(lambda future: _to_virtual(future.value()))


class _CoalescedWork(list[Any]):
    """All the work of a block that coalesces collectives; gloo starts each piece by itself."""

    def wait(self, *timeout: Any) -> bool:
        for work in self:
            work.wait(*timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self)


_coalesced: dict[str, _CoalescedWork] = {}
"""The work of the open blocks that coalesce collectives, by the name of the group."""


def _replace_coalescing() -> None:
    """Let groups coalesce collectives on virtual GPUs, as those of NCCL do."""

    @in_place_of("torch.distributed:ProcessGroup._start_coalescing")
    def start_coalescing(native: Function, self: ProcessGroup, device: torch.device) -> None:
        if torch.device(device).type != in_use().name:
            native(self, device)
        else:
            _coalesced[self.group_name] = _CoalescedWork()

    @in_place_of("torch.distributed:ProcessGroup._end_coalescing")
    def end_coalescing(native: Function, self: ProcessGroup, device: torch.device) -> Any:
        work = _coalesced.pop(self.group_name, None)
        return native(self, device) if work is None else work


AVERAGE = 1  # as c10d::ReduceOp::RedOpType numbers it
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def _replace_reduction(args: list[Any], parameters: Sequence[str]) -> bool:
    """Replace PREMUL_SUM, and AVG of integers, by a sum.

    Returns whether the result must be divided by the number of processes.
    """
    position = parameters.index("reduce_op")
    kind, factor, reduction_as_sum = torch.ops.xdevice_virtual.reduction(args[position])
    if factor is not None:
        _multiply_inputs(args, parameters, factor)
    first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
    divides = bool(kind == AVERAGE and first.dtype in _INTEGERS)
    if divides or kind != AVERAGE:
        args[position] = reduction_as_sum
    return divides


def _multiply_inputs(args: list[Any], parameters: Sequence[str], factor: Tensor) -> None:
    """Multiply the inputs of a collective, in place if it reduces them in place."""
    in_place = "tensors" in parameters

    def multiply(x: Tensor) -> Tensor:
        return x.mul_(factor.to(x)) if in_place else x * factor.to(x)

    for i, parameter in enumerate(parameters):
        if parameter.startswith(("tensor", "input")):
            args[i] = _mapped(multiply, args[i])
            return


def _divided(work: BoxedWork, sums: Any, size: int) -> BoxedWork:
    """The complete work of an average: to wait for the work of the sum again would undo it."""
    dist.Work.unbox(work).wait()
    future = torch.futures.Future[Any]()
    future.set_result(_mapped(lambda x: x.div_(size, rounding_mode="trunc"), sums))
    return _work_of(future)


def _all_of(works: Sequence[BoxedWork], function: Callable[[], Any]) -> BoxedWork:
    """The work that runs the function when all the works are complete."""
    futures = [dist.Work.unbox(work).get_future() for work in works]
    return _work_of(torch.futures.collect_all(futures).then(lambda _: function()))


def _work_of(future: torch.futures.Future[Any]) -> BoxedWork:
    return core._distributed_c10d._create_work_from_future(future).boxed()


def _all_gather(
    outputs: Sequence[Sequence[Tensor]],
    inputs: Sequence[Tensor],
    group: BoxedGroup,
    *options: object,
) -> Any:
    """Gather tensors; if sizes differ, each process broadcasts its own, as with NCCL."""
    if len({part.shape for part in outputs[0]}) == 1:
        return _operations.allgather_.default(outputs, inputs, group, *options)
    outputs[0][dist.ProcessGroup.unbox(group).rank()].copy_(inputs[0])
    broadcast = _operations.broadcast_.default
    works = []
    for root, part in enumerate(outputs[0]):
        _, work = broadcast([part], group, root, 0, *options)
        works.append(work)
    return outputs, _all_of(works, lambda: outputs)


def _all_to_all(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], group: BoxedGroup, *options: object
) -> tuple[Sequence[Tensor], BoxedWork]:
    """Exchange tensors of different sizes as parts of one tensor."""
    output_sizes = [part.numel() for part in outputs]
    input_sizes = [part.numel() for part in inputs]
    flat_inputs = torch.cat([part.reshape(-1) for part in inputs])
    flat_outputs = flat_inputs.new_empty(sum(output_sizes))
    exchange = _operations.alltoall_base_.default
    work = exchange(flat_outputs, flat_inputs, group, output_sizes, input_sizes, *options)

    def copy_to_outputs() -> Sequence[Tensor]:
        for part, values in zip(outputs, torch.split(flat_outputs, output_sizes), strict=True):
            part.copy_(values.view_as(part))
        return outputs

    return outputs, _all_of([work], copy_to_outputs)


_Key = tuple[str, int]
"""The name of a group and a tag."""

_unreceived: dict[_Key, deque[Tensor]] = defaultdict(deque)
"""Messages that this process has sent to itself, and not yet received."""

_receivers: dict[_Key, deque[tuple[Tensor, torch.futures.Future[Any]]]] = defaultdict(deque)
"""The tensors in which this process waits for messages from itself."""


def _send(tensors: Sequence[Tensor], boxed_group: BoxedGroup, peer: int, tag: int) -> BoxedWork:
    """Send a message; gloo has no connection of a process to itself."""
    group = dist.ProcessGroup.unbox(boxed_group)
    if peer != group.rank():
        return _operations.send.default(tensors, boxed_group, peer, tag)
    key = (group.group_name, tag)
    if _receivers[key]:
        receiver, received = _receivers[key].popleft()
        receiver.copy_(tensors[0])
        received.set_result(None)
    else:
        _unreceived[key].append(tensors[0].clone())
    return _completed_work()


def _receive(tensors: Sequence[Tensor], boxed_group: BoxedGroup, peer: int, tag: int) -> BoxedWork:
    """Receive a message; gloo has no connection of a process to itself."""
    group = dist.ProcessGroup.unbox(boxed_group)
    if peer != group.rank():
        return _operations.recv_.default(tensors, boxed_group, peer, tag)
    key = (group.group_name, tag)
    if _unreceived[key]:
        tensors[0].copy_(_unreceived[key].popleft())
        return _completed_work()
    received = torch.futures.Future[Any]()
    _receivers[key].append((tensors[0], received))
    return _work_of(received)


def _completed_work() -> BoxedWork:
    future = torch.futures.Future[Any]()
    future.set_result(None)
    return _work_of(future)


_COMPOSED: dict[str, Function] = {
    "allgather_": _all_gather,
    "alltoall_": _all_to_all,
    "send": _send,
    "recv_": _receive,
}
"""The collectives that gloo lacks, or has only in part."""
