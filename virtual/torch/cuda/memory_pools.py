"""Pools of memory that a program makes: ``torch.cuda.MemPool`` and what ``use_mem_pool`` calls."""

from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import finalize

from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.compiled import Compiled, compiled
from xdevice.virtual.torch.private_names import untyped_torch

PoolId = tuple[int, int]

_numbers = count(1)


def new_id() -> PoolId:
    """The identity of a pool that the program makes. (0, 0) is the default pool."""
    return 0, next(_numbers)


class MemPool:
    """A pool of memory, whose blocks are apart from those of other pools.

    `use_on_oom` offers its unused blocks for allocations in no pool when the memory is full, and
    `no_split` leaves its segments whole.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        if allocator is not None:
            raise NotImplementedError(
                "virtual GPUs have no allocators of a program's own; make the pool without one"
            )
        untyped_torch.cuda.init()
        self._id = new_id()
        self._device = runtime.index_of(None)
        finalize(self, _release, compiled(), self._device, self._id).atexit = False
        compiled().use_pool(self._device, *self._id)
        compiled().configure_pool(self._device, *self._id, not no_split, use_on_oom)

    @property
    def id(self) -> PoolId:
        return self._id

    @property
    def device(self) -> int:
        return self._device

    @property
    def allocator(self) -> None:
        return None

    def use_count(self) -> int:
        """How many uses the pool has: the object, and each block that allocates in it."""
        uses: int = compiled().uses_of_pool(self._device, *self._id)
        return uses

    def snapshot(self, include_traces: bool = True) -> Any:
        """The segments of the pool, as ``torch.cuda.memory_snapshot`` has them."""
        return untyped_torch.cuda.memory_snapshot(self.id, include_traces=include_traces)


def _release(virtual: Compiled, device: int, pool: PoolId) -> None:
    virtual.configure_pool(device, *pool, True, False)
    virtual.release_pool(device, *pool)
    virtual.empty_pool(*pool)


def _begin(device: int, pool: PoolId, of_thread: bool) -> None:
    compiled().use_pool(device, *pool)
    if not compiled().begin_pool(device, *pool, of_thread):
        raise RuntimeError("beginAllocateToPool: already recording to mempool_id")


def _end(device: int, pool: PoolId) -> None:
    if not compiled().end_pool(device, *pool):
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "beginAllocateToPool": lambda device, pool: _begin(device, pool, False),
    "beginAllocateCurrentThreadToPool": lambda device, pool: _begin(device, pool, True),
    "endAllocateToPool": _end,
    "releasePool": lambda device, pool: compiled().release_pool(device, *pool),
}
"""The functions of ``torch._C``, by name without the prefix ``_cuda_``."""
