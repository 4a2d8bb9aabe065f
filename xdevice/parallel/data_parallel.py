"""One step of training on many devices: `data_parallel`."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Block, Function, Tensor, Tree
from xdevice.device import Device
from xdevice.errors import ArgumentError, ArgumentTypeError, NotSupportedError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.hardware.scopes import scope
from xdevice.parallel.batches import split_arguments
from xdevice.parallel.replicas import Replicas, check_alike, check_operation, checked_devices
from xdevice.parallel.vectors import Column, on_each_device, reduce_columns, results_of
from xdevice.tensors.gradients import (
    Call,
    Differentiation,
    differentiate,
    differentiating,
    notify_listeners,
    parameters_in,
    with_tensors,
)
from xdevice.tensors.placement import device_of
from xdevice.tensors.trees.by_place import LeavesByPlace
from xdevice.tensors.trees.leaves import Leaf
from xdevice.typing import DeviceLike

__all__ = ["data_parallel"]

Loss: TypeAlias = Any
"""A tensor of one number; with ``has_aux`` a tuple of the loss and a list."""

Aux: TypeAlias = Any
"""What the loss function returns beside the loss."""


def data_parallel(
    fn: Function,
    devices: Sequence[DeviceLike],
    *,
    reduction: str = "mean",
    has_aux: bool = False,
) -> Callable[..., tuple[Loss, Tree]]:
    """A training step on all devices.

    ``step(params, *batch)`` returns the loss and its gradients.

    They equal those of ``value_and_grad(fn)(params, *batch)`` on one device.
    The batch is split over the devices as by `split_batch`, and the results
    are weighted by the numbers of rows. ``fn`` runs once per device, within a
    `scope` of it, and in several threads if the framework supports that.
    Random numbers and statistics over the batch differ from those on one
    device.

    A batch from `prefetch` for the same devices is split already:
    ``step(params, parts)``.

    ``params`` is either a tree of tensors or `Replicas`. A tree is copied to
    each device that it is not on, and the loss and the gradients are on the
    parameters' own devices. `Replicas`, made by `replicate` for these devices,
    are used as they are; then the gradients are `Replicas`, too, with equal
    values, and the loss is on the first device.

    Parameters
    ----------
    fn
        ``fn(params, *batch)`` returns the loss of its rows, a tensor of one
        number. It may be a function that the framework has compiled.
    devices
        The devices to compute on; a device may be listed twice.
    reduction
        Whether ``fn`` returns the ``"mean"`` over its rows, or the ``"sum"``.
    has_aux
        Whether ``fn`` returns ``(loss, aux)``; the step then returns
        ``((loss, [aux, …]), gradients)``, with one ``aux`` per device.

    Raises
    ------
    ArgumentError
        There are no devices, or the reduction is unknown. On calling: as for
        `split_batch` and `value_and_grad`, or the replicas are not for these
        devices.
    ArgumentTypeError
        ``fn`` cannot be called. On calling: the loss is not of floating-point
        numbers, the parameters are in a set, or the replicas are in a plain
        list.
    DeviceNotFoundError, DeviceSpellingError
        The chosen framework does not have the device, or the string does not
        name one.
    NotSupportedError
        On calling: the framework has no gradients, or this is inside
        `value_and_grad`.

    Examples
    --------
    >>> import xdevice
    >>> loss_of = lambda w, x: ((x - w) ** 2).mean()
    >>> step = xdevice.data_parallel(loss_of, xdevice.try_all_gpus())  # doctest: +SKIP
    >>> loss, gradient = step(xdevice.zeros(1), xdevice.ones(8, 1))  # doctest: +SKIP
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"{shortened(fn)} cannot be called; pass the function that returns the loss"
        )
    check_operation(reduction, ("mean", "sum"))
    return _Step(fn, checked_devices(devices), reduction == "mean", has_aux)


class _ShardResult(NamedTuple):
    """The result of one device for its rows."""

    loss: Tensor
    aux: Aux
    gradients: list[Tensor]


class _Shard(NamedTuple):
    """One device's rows of the batch, as a call of the loss.

    And the parameters on that device.
    """

    call: Call
    device: Device
    parameters: list[Tensor]

    def differentiate(self) -> _ShardResult:
        with using(self.call.how.owner), scope(self.device):
            return _ShardResult(*differentiate(self.call, self.parameters))


class _Step:
    """The training step that `data_parallel` returns."""

    def __init__(self, fn: Function, devices: list[Device], mean: bool, has_aux: bool) -> None:
        self._fn = fn
        self._devices = devices
        self._mean = mean
        self._has_aux = has_aux
        # made when first needed, by the process with this number
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def __call__(self, params: Tree | Replicas, *batch: Tree) -> tuple[Loss, Tree]:
        if differentiating():
            raise NotSupportedError("data_parallel has no gradient; call it outside value_and_grad")
        if isinstance(params, Replicas):
            return self._step_on_replicas(params, batch)
        return self._step_on_tree(params, batch)

    def _step_on_tree(self, tree: Tree, batch: Sequence[Tree]) -> tuple[Loss, Tree]:
        """The loss and the gradients on the parameters' own devices."""
        flat = LeavesByPlace(tree)
        owner, parameters = _checked_parameters(flat)
        calls, sizes = self._calls([flat] * len(self._devices), batch, owner)
        copies = on_each_device(parameters, self._devices)
        try:
            results = self._compute(calls, copies, owner)
        except (TypeError, LookupError, AttributeError) as error:
            if _may_be_replicas(tree, len(self._devices)):
                raise _not_replicas_error(tree, error) from error
            raise
        notify_listeners(self._fn)
        homes = [owner.placement.device_of(parameter) for parameter in parameters]
        homes.append(homes[0])  # the loss is on the first parameter's device
        (tensors,) = self._reduce(results, sizes, owner, homes, [None])
        *gradients, loss = tensors
        (gradient_tree,) = with_tensors([flat], gradients)
        return self._with_aux(loss, results), gradient_tree

    def _step_on_replicas(self, replicas: Replicas, batch: Sequence[Tree]) -> tuple[Loss, Replicas]:
        """The loss on the first device, and the gradients on every device."""
        flats = _checked_replicas(replicas, self._devices)
        owner, parameters = _checked_parameters(flats[0])
        calls, sizes = self._calls(flats, batch, owner)
        results = self._compute(calls, [parameters_in([flat])[1] for flat in flats], owner)
        notify_listeners(self._fn)
        homes = [self._devices[0]] * (len(parameters) + 1)
        # on the first device the result of the reduction itself, on the others
        # copies of it
        destinations = [None, *range(1, len(flats))]
        tensors_by_replica = self._reduce(results, sizes, owner, homes, destinations)
        loss = tensors_by_replica[0][-1]
        gradients = Replicas()
        for flat, tensors in zip(flats, tensors_by_replica, strict=True):
            gradients += with_tensors([flat], tensors[:-1])
        return self._with_aux(loss, results), gradients

    def _calls(
        self, flats: list[LeavesByPlace], batch: Sequence[Tree], owner: Backend
    ) -> tuple[list[Call], list[int]]:
        """The call of the loss on each device, with these parameters.

        And the numbers of rows.
        """
        parts, sizes = split_arguments(batch, self._devices)
        how = Differentiation((0,), owner, self._has_aux)
        calls = [
            Call(self._fn, (flat.tree, *part), {}, how, [flat])
            for flat, part in zip(flats, parts, strict=True)
        ]
        return calls, sizes

    def _compute(
        self, calls: list[Call], parameters: list[list[Tensor]], owner: Backend
    ) -> list[_ShardResult]:
        """The result of each shard.

        Threads compute the results if the framework supports that.
        """
        shards = [_Shard(*shard) for shard in zip(calls, self._devices, parameters, strict=True)]
        is_one_device = len(set(self._devices)) == 1
        thread_context = None if is_one_device else owner.collectives.threads()
        if thread_context is None:
            return [shard.differentiate() for shard in shards]
        return self._compute_in_threads(shards, thread_context)

    def _compute_in_threads(
        self, shards: list[_Shard], thread_context: Callable[[], Block]
    ) -> list[_ShardResult]:
        """Compute the shards in threads, one for each device.

        This thread is that of the first device. Shards of one device are computed one after the
        other: threads that share a GPU are not safe in every framework.
        """
        numbers_by_device: dict[Device, list[int]] = {}
        for i, device in enumerate(self._devices):
            numbers_by_device.setdefault(device, []).append(i)
        first, *others = numbers_by_device.values()
        results: dict[int, _ShardResult] = {}

        def differentiate(numbers: list[int]) -> None:
            for i in numbers:
                results[i] = shards[i].differentiate()

        def differentiate_in_thread(numbers: list[int]) -> None:
            with thread_context():
                differentiate(numbers)

        pool = self._thread_pool()
        futures = [
            pool.submit(copy_context().run, differentiate_in_thread, numbers) for numbers in others
        ]
        try:
            differentiate(first)
        finally:
            wait(futures)  # errors are raised when all threads have ended
        for future in futures:
            future.result()  # raises the thread's error
        return [results[i] for i in range(len(shards))]

    def _thread_pool(self) -> ThreadPoolExecutor:
        process = os.getpid()
        if self._pool is None or self._pool[0] != process:  # a forked process has no threads
            pool = ThreadPoolExecutor(len(set(self._devices)) - 1, "xdevice.data_parallel")
            self._pool = process, pool
        return self._pool[1]

    def _reduce(
        self,
        results: list[_ShardResult],
        sizes: list[int],
        owner: Backend,
        homes: list[Device],
        destinations: Sequence[int | None],
    ) -> list[list[Tensor]]:
        """The whole batch's gradients and then its loss, on their homes.

        There is one list for each destination: the number of a replica, or
        ``None`` for the homes.
        """
        tensors_by_shard = [[*result.gradients, result.loss] for result in results]
        if len(results) == 1:
            tensors = tensors_by_shard[0]
            devices = [owner.placement.device_of(tensor) for tensor in tensors]
            if all(device is home for device, home in zip(devices, homes, strict=True)):
                return [tensors]
        weights = [rows / sum(sizes) for rows in sizes] if self._mean else None
        columns: list[Column] = list(zip(*tensors_by_shard, strict=True))
        buckets = reduce_columns(columns, "sum", weights, homes)
        return [results_of(buckets, destination) for destination in destinations]

    def _with_aux(self, loss: Tensor, results: list[_ShardResult]) -> Loss:
        if not self._has_aux:
            return loss
        return loss, [result.aux for result in results]


def _checked_parameters(flat: LeavesByPlace) -> tuple[Backend, list[Tensor]]:
    """The tensors of a tree and their framework.

    An error for one that is not a plain array.
    """
    owner, parameters = parameters_in([flat])
    for tensor in parameters:
        owner.collectives.kind(tensor)  # raises the error
    return owner, parameters


def _may_be_replicas(tree: Tree, number_of_devices: int) -> bool:
    """Whether the value is a plain list or tuple of alike trees.

    There is one tree for each device.
    """
    if type(tree) not in (list, tuple) or len(tree) != number_of_devices:
        return False
    flats = [LeavesByPlace(part) for part in tree]
    return all(flats[0].paths == flat.paths for flat in flats)


def _not_replicas_error(tree: Tree, error: Exception) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"the loss cannot be computed with params, which is a plain {type(tree).__name__} of "
        f"{len(tree)}: {error}; if it has a replica for each device, pass Replicas(params), or "
        "make them with replicate(tree, devices)"
    )


def _checked_replicas(replicas: Replicas, devices: list[Device]) -> list[LeavesByPlace]:
    """The flattened replicas, if there is one on each device.

    They must have the same structure.
    """
    hint = "make them with replicate(params, devices)"
    if len(replicas) != len(devices):
        raise ArgumentError(
            f"there are {len(replicas)} replicas for {len(devices)} devices; {hint}"
        )
    for i, (replica, device) in enumerate(zip(replicas, devices, strict=True)):
        placement = device_of(replica)
        if placement is not device:
            raise ArgumentError(
                f"replica {i} is on {placement}, and was to be on {device}; {hint}, and update "
                "them with replicas.map(update, gradients), which computes each on its device"
            )
    flats = [LeavesByPlace(replica) for replica in replicas]
    if len(flats) == 1:
        return flats
    check_alike(flats)
    for leaves in zip(*[flat.leaves for flat in flats], strict=True):
        descriptions = dict.fromkeys(_description(leaf) for leaf in leaves)
        if len(descriptions) > 1:
            raise ArgumentError(
                f"a parameter is {' and '.join(descriptions)} in the replicas; {hint}"
            )
    return flats


def _description(leaf: Leaf) -> str:
    if leaf is None:
        return "None"
    if hasattr(leaf, "dtype"):
        return f"{leaf.dtype}{list(leaf.shape)}"
    return f"an object of type {type(leaf).__name__}"
