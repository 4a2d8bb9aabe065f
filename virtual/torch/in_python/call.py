"""Run an operation of virtual GPUs on CPU tensors that share the memory of its arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch

from xdevice.backends.torch import mixing
from xdevice.errors import mixed
from xdevice.virtual.torch import copies
from xdevice.virtual.torch.in_python import memory, nested
from xdevice.virtual.torch.in_python.randomness import check
from xdevice.virtual.torch.private_names import core, storage_of
from xdevice.virtual.torch.runtime import NAME, in_use, index_of, xdevice_device

Tensor = torch.Tensor

_CPU = torch.device("cpu")
_TAGS_OF_WAITING = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


@dataclass(slots=True)
class Plan:
    """Facts about an operation, looked up once."""

    name: str
    call: Callable[..., Any]
    written: frozenset[int | str] = frozenset()
    """The arguments that the operation writes to, by position or name."""
    indices: int | None = None
    """The position of the indices, which may be on the CPU as on real GPUs."""
    generator: int | str | None = None
    """The position or the name of the generator."""
    seeded: bool = False
    """Whether it draws random numbers and has no argument for a generator."""
    waits: bool = False
    """Whether it may copy between devices, or wait for a number."""
    lazy: bool = False
    """Whether it reads lazy conjugation and negation itself; for others torch resolves both."""


@cache
def planned(op: Any) -> Plan:
    schema = op._schema
    arguments = {arg.name if arg.kwarg_only else i: arg for i, arg in enumerate(schema.arguments)}
    keys = {arg.name: key for key, arg in arguments.items()}
    generator = keys.get("generator")
    indices = keys.get("indices") if "index" in schema.name else None
    return Plan(
        schema.name,
        op,
        written=frozenset(
            key for key, arg in arguments.items() if arg.alias_info and arg.alias_info.is_write
        ),
        indices=indices,
        generator=generator,
        seeded=generator is None and torch.Tag.nondeterministic_seeded in op.tags,
        waits=indices is not None or not _TAGS_OF_WAITING.isdisjoint(op.tags),
        lazy=_is_lazy(f"{schema.name}.{schema.overload_name}".removesuffix(".")),
    )


def _is_lazy(name: str) -> bool:
    for key in ("Conjugate", "Negative"):
        if core._dispatch_has_kernel_for_dispatch_key(
            name, key
        ) and core._dispatch_kernel_for_dispatch_key_is_fallthrough(name, key):
            return True
    return False


class Alias(NamedTuple):
    """A CPU tensor in the memory of a tensor on a virtual GPU."""

    host: Tensor
    virtual: Tensor


class Call:
    """One call of an operation."""

    __slots__ = (
        "aliases",
        "index",
        "other_device",
        "plan",
        "resizable",
        "resizable_aliases",
        "storages",
    )

    def __init__(self, plan: Plan, resizable: bool = False) -> None:
        self.plan = plan
        self.resizable = resizable  # whether the operation may resize what it writes to
        self.index: int | None = None  # the virtual GPU on which the operation runs
        self.other_device: torch.device | None = None  # a second device that has a tensor
        self.aliases: list[Alias] = []
        self.resizable_aliases: list[Alias] = []  # with a copy of the memory, which may grow
        self.storages: dict[int, Any] = {}

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        plan = self.plan
        if memory.watching and plan.waits:
            _report_copies(plan, args, kwargs)
        host_args = [self._host(arg, i) for i, arg in enumerate(args)]
        host_kwargs = {name: self._host(arg, name) for name, arg in kwargs.items()}
        if self.other_device is not None:
            raise self._mixed()
        if plan.generator is not None:
            self._set_generator(host_args, host_kwargs)
        try:
            if plan.seeded or torch.is_autocast_enabled("cpu"):
                with _without_autocast(plan, self.index):
                    result = plan.call(*host_args, **host_kwargs)
            else:
                result = plan.call(*host_args, **host_kwargs)
        except RuntimeError as error:
            memory.check_host(error, self._device_index())
            return self._retry(error).run(args, kwargs)
        if plan.written:
            self._adopt_changes()
        return self._virtual(result)

    def _device_index(self) -> int:
        return in_use().current() if self.index is None else self.index

    def _retry(self, error: RuntimeError) -> Call:
        """Another call of the operation, if the way in which it was called caused the error."""
        if self.plan.written and not self.resizable and "not resizable" in str(error):
            # a new call has new aliases: the sizes of the old ones exceed their memory
            return type(self)(self.plan, resizable=True)
        packet = getattr(self.plan.call, "overloadpacket", None)
        if packet is None or "instead found type" not in str(error):
            raise error
        self.plan.call = packet  # the argument is a number, which needs another overload
        return type(self)(self.plan)

    def _host(self, value: Any, key: int | str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._alias(value, key)
        if isinstance(value, (list, tuple)):
            return [self._host(item, key) for item in value]
        if isinstance(value, torch.device) and value.type == NAME:
            if self.index is None:
                self.index = index_of(value)
            return _CPU
        return value

    def _alias(self, tensor: torch.Tensor, key: int | str) -> torch.Tensor:
        plan = self.plan
        if tensor.is_cpu:
            # a tensor without dimensions on the CPU counts as a number
            if key in plan.written or (tensor.dim() and key != plan.indices):
                self.other_device = _CPU
            return tensor
        device = tensor.device
        if device.type != NAME or (self.index is not None and self.index != device.index):
            self.other_device = device
            return tensor
        self.index = device.index
        if key in plan.written and (self.resizable or not tensor.numel()):
            # a copy, since memory from DLPack cannot grow
            alias = memory.to_host(tensor).clone()
            self.resizable_aliases.append(Alias(alias, tensor))
            return alias
        alias = self._overlapping(tensor) if plan.written else memory.to_host(tensor)
        if plan.lazy:
            alias = memory.lazy_like(alias, tensor)
        self.aliases.append(Alias(alias, tensor))
        return alias

    def _overlapping(self, tensor: torch.Tensor) -> torch.Tensor:
        """An alias that shares its storage with other aliases of that memory.

        torch's checks of overlapping arguments compare storages.
        """
        address = storage_of(tensor)._cdata
        if address not in self.storages:
            self.storages[address] = None
            return memory.to_host(tensor)
        shared = self.storages[address]
        if shared is None:
            shared = self.storages[address] = storage_of(memory.whole(tensor))
            for alias, other in self.aliases:
                if storage_of(other)._cdata == address:
                    _place(alias, other, shared)
        return _place(torch.empty(0, dtype=tensor.dtype, device="cpu"), tensor, shared)

    def _adopt_changes(self) -> None:
        """Give the virtual tensors the new sizes and contents of their aliases."""
        for host, virtual in self.aliases:
            if host.shape != virtual.shape:  # the operation has made it smaller
                storage = storage_of(virtual)
                offset = virtual.storage_offset()
                memory.place(virtual, storage, offset, host.shape, host.stride())
        for host, virtual in self.resizable_aliases:
            if host.shape == virtual.shape:
                memory.to_host(virtual).copy_(host)
            else:
                memory.check_unshared(virtual)
                resized = memory.to_virtual(host, virtual.device.index)
                storage = storage_of(resized)
                offset = resized.storage_offset()
                memory.place(virtual, storage, offset, resized.shape, resized.stride())
        self.aliases += self.resizable_aliases

    def _virtual(self, value: Any) -> Any:
        """The result on the virtual GPU; an argument that was written to is returned itself."""
        if isinstance(value, torch.Tensor):
            for host, virtual in self.aliases:
                if host is value:
                    return virtual
            if value.is_nested:
                return nested.to_virtual(value, self._device_index())
            if value.layout is not torch.strided or value.is_quantized:
                raise refusal(self.plan.name, "makes a tensor that is")
            return memory.to_virtual(value, self._device_index())
        if isinstance(value, (list, tuple)):
            return type(value)(self._virtual(item) for item in value)
        return value

    def _set_generator(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Check the generator among the arguments, or add the default one."""
        position = self.plan.generator
        if isinstance(position, int) and position < len(args):
            generator = args.pop()  # the last argument that has a position
        else:
            generator = kwargs.get("generator")
        if generator is None:
            generator = in_use().generators[self._device_index()]
        else:
            check(generator, self._device_index())
        kwargs["generator"] = generator

    def _mixed(self) -> RuntimeError:
        assert self.other_device is not None
        devices = {torch.device(NAME, self._device_index()), self.other_device}
        if mixing.is_forbidden():
            return mixed(self.plan.name, [xdevice_device(device) for device in devices])
        first, second = sorted(map(str, devices), key=lambda name: (name.startswith("cpu"), name))
        return RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{first} and {second}! (when checking {self.plan.name})"
        )


def _report_copies(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if kwargs.get("output_size") is not None:  # the host does not wait for a known size
        return
    values = [*args, *kwargs.values()]
    is_flagged = plan.indices is not None
    flag = is_flagged and next((value for value in values if isinstance(value, bool)), False)
    tensors: list[Tensor | None] = []
    for i, value in enumerate(values):
        if i == plan.indices:
            tensors += value
        elif isinstance(value, torch.Tensor):
            tensors.append(value)
    copies.report_copies(plan.name, tensors, flag)


def _place(alias: Tensor, tensor: Tensor, storage: Any) -> Tensor:
    return alias.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


_AUTOCAST = core.DispatchKeySet(core.DispatchKey.AutocastCPU)
_random_lock = threading.Lock()


@contextmanager
def _without_autocast(plan: Plan, index: int | None) -> Generator[None]:
    """Disable autocast of the CPU; a seeded operation draws from the virtual GPU's generator."""
    with core._ExcludeDispatchKeyGuard(_AUTOCAST):
        if not plan.seeded:
            yield
            return
        generator = in_use().generators[in_use().current() if index is None else index]
        cpu_generator = torch.default_generator
        with _random_lock:
            cpu_state = cpu_generator.get_state()
            cpu_generator.set_state(core.Generator.get_state(generator))
            try:
                yield
            finally:
                core.Generator.set_state(generator, cpu_generator.get_state())
                cpu_generator.set_state(cpu_state)


def refusal(name: str, verb: str) -> NotImplementedError:
    return NotImplementedError(
        f"{name} {verb} sparse or quantized: quantized tensors are not supported on virtual GPUs, "
        "and sparse ones need a C++ compiler; do it on the CPU, or apt install g++"
    )
