"""One step of training on many devices: `data_parallel`."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any

from xdevice.device import Device
from xdevice.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.hardware.scopes import scope
from xdevice.parallel.batches import split_arguments
from xdevice.parallel.replicas import Replicas, check_alike, check_operation, checked_devices
from xdevice.parallel.vectors import Column, in_order, reduced, spread
from xdevice.tensors.gradients import (
    Call,
    How,
    differentiate,
    differentiating,
    parameters_in,
    tell_ended,
    with_tensors,
)
from xdevice.tensors.placement import device_of
from xdevice.tensors.trees.tree import Flat, flatten
from xdevice.typing import DeviceLike

__all__ = ["data_parallel"]

_Result = tuple[
    Any, Any, list[Any]
]  # a device's loss of its rows, what comes beside it, and the gradients


def data_parallel(
    fn: Callable[..., Any],
    devices: Sequence[DeviceLike],
    *,
    reduction: str = "mean",
    has_aux: bool = False,
) -> Callable[..., tuple[Any, Any]]:
    """A training step on all devices at once: ``step(params, *batch)`` returns the loss and its gradients.

    They equal those of ``value_and_grad(fn)(params, *batch)`` on one device: the batch is split over the
    devices as by `split_batch`, and each device's result is weighted by its number of rows. ``fn`` runs once
    per device, within a `scope` of it, and in several threads where the framework supports that. Random
    numbers and statistics over the batch differ from those on one device.

    What `prefetch` gives for the same devices is a batch that is split already: ``step(params, parts)``.

    ``params`` is a tree of tensors, which is copied to each device that it is not on; the loss and the
    gradients are on the parameters' own devices. Or it is `Replicas`, made by `replicate` for these devices and
    used as they are: then the gradients are `Replicas`, too, with equal values, and the loss is on the first device.

    Parameters
    ----------
    fn
        ``fn(params, *batch)`` returns the loss of its rows, a tensor of one number. The framework may have
        compiled it.
    devices
        The devices to compute on; a device may be listed twice.
    reduction
        Whether ``fn`` returns the ``"mean"`` over its rows, or the ``"sum"``.
    has_aux
        Whether ``fn`` returns ``(loss, aux)``; the step then returns ``((loss, [aux, …]), gradients)``, with one
        ``aux`` per device.

    Raises
    ------
    ArgumentError
        No devices, or an unknown reduction. On calling: as `split_batch` and `value_and_grad`, or the replicas
        are not for these devices.
    ArgumentTypeError
        ``fn`` cannot be called. On calling: a loss that is not of floating-point numbers; parameters in a set;
        replicas in a plain list.
    DeviceNotFoundError, DeviceSpellingError
        The chosen framework does not have the device, or the string does not name one.
    NotSupportedError
        On calling: the framework has no gradients, or this is inside `value_and_grad`.

    Examples
    --------
    >>> import xdevice
    >>> step = xdevice.data_parallel(lambda w, x: ((x - w) ** 2).mean(), xdevice.try_all_gpus())  # doctest: +SKIP
    >>> loss, gradient = step(xdevice.zeros(1), xdevice.ones(8, 1))  # doctest: +SKIP
    """
    if not callable(fn):
        raise ArgumentTypeError(f"{fn!r} cannot be called; pass the function that returns the loss")
    check_operation(reduction, ("mean", "sum"))
    return _Step(fn, checked_devices(devices), reduction == "mean", has_aux)


def _computed(call: Call, device: Device, parameters: list[Any]) -> _Result:
    with using(call.how.owner), scope(device):
        return differentiate(call, parameters)


class _Step:
    def __init__(
        self, fn: Callable[..., Any], devices: list[Device], mean: bool, has_aux: bool
    ) -> None:
        self._fn, self._devices, self._mean, self._has_aux = fn, devices, mean, has_aux
        self._pool: tuple[int, ThreadPoolExecutor] | None = (
            None  # the process it belongs to; made when first needed
        )

    def __call__(self, params: Any, *batch: Any) -> tuple[Any, Any]:
        if differentiating():
            raise NotSupportedError("data_parallel has no gradient; call it outside value_and_grad")
        replicated = isinstance(params, Replicas)
        flats = _checked_replicas(params, self._devices) if replicated else [flatten(params)]
        if not replicated and flats[0].unordered:
            raise ArgumentTypeError(
                "data_parallel was given parameters in a set, which has no order; give a list"
            )
        owner, parameters = parameters_in(flats[:1])
        for tensor in parameters:
            owner.collectives.kind(tensor)  # raises for one that is not a plain array
        parts, sizes = split_arguments(batch, self._devices)
        here = (
            [parameters_in([flat])[1] for flat in flats]
            if replicated
            else spread(parameters, self._devices)
        )
        how = How((0,), owner, self._has_aux)
        trees = flats if replicated else flats * len(parts)
        calls = [
            Call(self._fn, (flat.tree, *part), {}, how, [flat])
            for flat, part in zip(trees, parts, strict=True)
        ]
        try:
            found = self._compute(calls, here, owner)
        except (TypeError, LookupError, AttributeError) as error:
            may_be = [flatten(tree) for tree in params] if type(params) in (list, tuple) else []
            if len(may_be) == len(self._devices) and all(map(may_be[0].same_structure, may_be)):
                raise ArgumentTypeError(
                    f"the loss cannot be computed with params, which is a plain {type(params).__name__} of "
                    f"{len(params)}: {error}; if it has a replica for each device, pass Replicas(params), or make them "
                    "with replicate(tree, devices)"
                ) from error
            raise
        tell_ended(self._fn)
        homes = [
            self._devices[0] if replicated else owner.placement.device_of(tensor)
            for tensor in parameters
        ]
        places = range(1, len(calls)) if replicated else ()
        columns: list[Column] = list(
            zip(*[[*gradients, value] for value, _, gradients in found], strict=True)
        )
        results = self._reduced(columns, sizes, owner, [*homes, homes[0]], [None, *places])
        loss = (results[0][-1], [aux for _, aux, _ in found]) if self._has_aux else results[0][-1]
        gradients = [
            with_tensors([flat], new[:-1])[0] for flat, new in zip(flats, results, strict=True)
        ]
        return loss, Replicas(gradients) if replicated else gradients[0]

    def _compute(self, calls: list[Call], here: list[list[Any]], owner: Backend) -> list[_Result]:
        """What each device finds with the parameters that are there: in threads, if the framework can."""
        work = list(zip(calls, self._devices, here, strict=True))
        enter = owner.collectives.threads() if len(work) > 1 else None
        if enter is None:
            return [_computed(*one) for one in work]

        def in_thread(one: tuple[Call, Device, list[Any]]) -> _Result:
            with enter():
                return _computed(*one)

        if self._pool is None or self._pool[0] != os.getpid():  # a fork takes no threads along
            self._pool = (
                os.getpid(),
                ThreadPoolExecutor(len(self._devices) - 1, "xdevice.data_parallel"),
            )
        pool = self._pool[1]
        futures = [pool.submit(copy_context().run, in_thread, one) for one in work[1:]]
        try:
            first = _computed(*work[0])
        finally:
            wait(futures)  # errors are raised once all have ended
        return [first, *(future.result() for future in futures)]

    def _reduced(
        self,
        columns: list[Column],
        sizes: list[int],
        owner: Backend,
        homes: list[Device],
        places: list[int | None],
    ) -> list[list[Any]]:
        """The gradients and then the loss of the whole batch, in each of these places; ``None`` is at home."""
        where = owner.placement.device_of
        if len(sizes) == 1 and all(
            where(column[0]) is home for column, home in zip(columns, homes, strict=True)
        ):
            return [[column[0] for column in columns]]
        weights = [rows / sum(sizes) for rows in sizes] if self._mean else None
        buckets = reduced(columns, "sum", weights, homes)
        return [in_order(buckets, place) for place in places]


def _checked_replicas(replicas: Replicas, devices: list[Device]) -> list[Flat]:
    """The replicas, if there is one of a structure on each device."""
    make_them = "make them with replicate(params, devices)"
    if len(replicas) != len(devices):
        raise ArgumentError(
            f"there are {len(replicas)} replicas for {len(devices)} devices; {make_them}"
        )
    for i, (place, device) in enumerate(zip(map(device_of, replicas), devices, strict=True)):
        if place is not device:
            raise ArgumentError(
                f"replica {i} is on {place}, and was to be on {device}; {make_them}"
            )
    flats = [flatten(tree) for tree in replicas]
    if len(flats) == 1:
        return flats
    check_alike(flats)
    for leaves_alike in zip(*[flat.leaves for flat in flats], strict=True):
        if (
            len(
                {
                    (str(leaf.dtype), tuple(leaf.shape))
                    for leaf in leaves_alike
                    if hasattr(leaf, "dtype")
                }
            )
            > 1
        ):
            found = " and ".join(
                dict.fromkeys(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves_alike)
            )
            raise ArgumentError(f"a parameter is {found} in the replicas; {make_them}")
    return flats
