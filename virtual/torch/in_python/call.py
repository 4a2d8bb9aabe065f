"""Computation on virtual GPUs: each operation runs on CPU tensors that share the memory of its arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from xdevice.backends.torch import mixing
from xdevice.errors import mixed
from xdevice.virtual.torch import copies
from xdevice.virtual.torch.in_python import memory, nested
from xdevice.virtual.torch.in_python.randomness import check
from xdevice.virtual.torch.private_names import core, storage_of
from xdevice.virtual.torch.runtime import NAME, in_use, index_of, xdevice_device

_CPU = torch.device("cpu")
_WAITS = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


@dataclass(slots=True)
class Plan:
    """Facts about an operation, looked up once."""

    name: str
    call: Callable[..., Any]
    written: frozenset[int | str] = frozenset()  # arguments that it writes to: by position, or name
    indices: int | None = None  # the argument with indices, which may be on the CPU as on real GPUs
    generator: int | str | None = None
    seeded: bool = False  # draws random numbers, and takes no generator
    waits: bool = False  # may copy between devices, or wait for a number
    lazy: bool = (
        False  # reads lazy conjugation and negation itself; else torch has resolved both before
    )


@cache
def planned(op: Any) -> Plan:
    schema = op._schema
    arguments = {arg.name if arg.kwarg_only else i: arg for i, arg in enumerate(schema.arguments)}
    named = {arg.name: k for k, arg in arguments.items()}
    generator, indices = (
        named.get("generator"),
        named.get("indices") if "index" in schema.name else None,
    )
    full = f"{schema.name}.{schema.overload_name}".removesuffix(".")
    return Plan(
        schema.name,
        op,
        written=frozenset(
            k for k, arg in arguments.items() if arg.alias_info and arg.alias_info.is_write
        ),
        indices=indices,
        generator=generator,
        seeded=generator is None and torch.Tag.nondeterministic_seeded in op.tags,
        waits=indices is not None or not _WAITS.isdisjoint(op.tags),
        lazy=any(
            core._dispatch_has_kernel_for_dispatch_key(full, key)
            and core._dispatch_kernel_for_dispatch_key_is_fallthrough(full, key)
            for key in ("Conjugate", "Negative")
        ),
    )


class Call:
    __slots__ = ("aliases", "fresh", "index", "plan", "roomy", "storages", "stranger")

    def __init__(self, plan: Plan, roomy: bool = False) -> None:
        self.plan, self.roomy = plan, roomy  # and whether results may grow
        self.index: int | None = None  # of the virtual GPU where it happens
        self.stranger: torch.device | None = None  # another device that a tensor is on
        self.aliases: list[
            tuple[torch.Tensor, torch.Tensor]
        ] = []  # on the host, and on the virtual GPU
        self.fresh: list[
            tuple[torch.Tensor, torch.Tensor]
        ] = []  # aliases in memory of their own, which may grow
        self.storages: dict[int, Any] = {}

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        plan = self.plan
        if memory.watching and plan.waits:
            _look(plan, args, kwargs)
        here = [self._host(arg, i) for i, arg in enumerate(args)]
        named = {name: self._host(arg, name) for name, arg in kwargs.items()}
        if self.stranger is not None:
            raise self._mixed()
        if plan.generator is not None:
            self._give_generator(here, named)
        try:
            usual = not (plan.seeded or torch.is_autocast_enabled("cpu"))
            with _usual if usual else _unusual(plan, self.index):
                result = plan.call(*here, **named)
        except RuntimeError as error:
            memory.check_host(error, self._here())
            return self._again(error).run(args, kwargs)
        if plan.written:
            self._adopt_changes()
        return self._virtual(result)

    def _here(self) -> int:
        return in_use().current() if self.index is None else self.index

    def _again(self, error: RuntimeError) -> Call:
        """Another way to run the operation, if the error is due to the way it was run."""
        if self.plan.written and not self.roomy and "not resizable" in str(error):
            # with new aliases: those that could not grow already have a size beyond the end of their memory
            return type(self)(self.plan, roomy=True)
        packet = getattr(self.plan.call, "overloadpacket", None)
        if packet is None or "instead found type" not in str(error):
            raise error
        self.plan.call = packet  # the argument arrived as a number, which needs another overload
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
            if key in plan.written or (
                tensor.dim() and key != plan.indices
            ):  # a CPU scalar counts as a number
                self.stranger = _CPU
            return tensor
        device = tensor.device
        if device.type != NAME or (self.index is not None and self.index != device.index):
            self.stranger = device
            return tensor
        self.index = device.index
        if not plan.written:
            alias = memory.to_host(tensor)
        elif key in plan.written and (
            self.roomy or not tensor.numel()
        ):  # memory under DLPack cannot grow
            alias = memory.to_host(tensor).clone()
            self.fresh.append((alias, tensor))
            return alias
        else:
            alias = self._overlapping(tensor)
        if plan.lazy:
            alias = memory.lazy_like(alias, tensor)
        self.aliases.append((alias, tensor))
        return alias

    def _overlapping(self, tensor: torch.Tensor) -> torch.Tensor:
        """An alias in the storage of the other aliases of that memory, as torch's overlap checks expect."""
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
        for alias, tensor in self.aliases:
            if alias.shape != tensor.shape:  # it has shrunk
                memory.place(
                    tensor, storage_of(tensor), tensor.storage_offset(), alias.shape, alias.stride()
                )
        for alias, tensor in self.fresh:
            if alias.shape == tensor.shape:
                memory.to_host(tensor).copy_(alias)
            else:
                memory.check_unshared(tensor)
                made = memory.to_virtual(alias, tensor.device.index)
                memory.place(
                    tensor, storage_of(made), made.storage_offset(), made.shape, made.stride()
                )
        self.aliases += self.fresh

    def _virtual(self, value: Any) -> Any:
        """The result on the virtual GPU; an argument that was written to is returned itself."""
        if isinstance(value, torch.Tensor):
            for alias, tensor in self.aliases:
                if alias is value:
                    return tensor
            if value.is_nested:
                return nested.to_virtual(value, self._here())
            if value.layout is not torch.strided or value.is_quantized:
                raise refusal(self.plan.name, "makes a tensor that is")
            return memory.to_virtual(value, self._here())
        if isinstance(value, (list, tuple)):
            return type(value)(self._virtual(item) for item in value)
        return value

    def _give_generator(self, here: list[Any], named: dict[str, Any]) -> None:
        at = self.plan.generator  # where it has a position, it is the last that has one
        given = here.pop() if isinstance(at, int) and at < len(here) else named.get("generator")
        if given is not None:
            check(given, self._here())
        named["generator"] = in_use().generators[self._here()] if given is None else given

    def _mixed(self) -> RuntimeError:
        there = {torch.device(NAME, self._here()), self.stranger}
        if mixing.is_forbidden():
            return mixed(
                self.plan.name, [xdevice_device(device) for device in there if device is not None]
            )
        first, second = sorted(map(str, there), key=lambda name: (name.startswith("cpu"), name))
        return RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {first} and {second}! "
            f"(when checking {self.plan.name})"
        )


def _look(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if kwargs.get("output_size") is not None:  # which needs not be waited for
        return
    values = [*args, *kwargs.values()]
    flag = next((value for value in values if isinstance(value, bool)), False)  # accumulate
    tensors: list[torch.Tensor | None] = []
    for i, value in enumerate(values):
        tensors += (
            value if i == plan.indices else [value] if isinstance(value, torch.Tensor) else []
        )
    copies.look(plan.name, tensors, flag)


def _place(alias: torch.Tensor, tensor: torch.Tensor, storage: Any) -> torch.Tensor:
    return alias.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


_AUTOCAST = core.DispatchKeySet(core.DispatchKey.AutocastCPU)
_drawing = threading.Lock()


@contextmanager
def _unusual(plan: Plan, index: int | None) -> Generator[None]:
    """Run without CPU autocast, and draw from the virtual GPU's generator."""
    with ExitStack() as stack:
        stack.enter_context(core._ExcludeDispatchKeyGuard(_AUTOCAST))
        if plan.seeded:
            stack.enter_context(_drawing)
            own = in_use().generators[in_use().current() if index is None else index]
            kept = torch.default_generator.get_state()
            torch.default_generator.set_state(core.Generator.get_state(own))
            stack.callback(lambda: torch.default_generator.set_state(kept))
            stack.callback(
                lambda: core.Generator.set_state(own, torch.default_generator.get_state())
            )
        yield


_usual = nullcontext()


def refusal(name: str, does: str) -> NotImplementedError:
    return NotImplementedError(
        f"{name} {does} sparse or quantized: quantized tensors are not supported on virtual GPUs, and sparse ones need "
        "a C++ compiler; do it on the CPU, or apt install g++"
    )
