"""The memory of devices."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from typing import Protocol, TypedDict

from xdevice.device import Device

__all__ = ["Memory", "MemoryStats"]


class MemoryStats(TypedDict, total=False):
    """Bytes, each ``None`` where it is not known."""

    total: int | None  # the device's memory
    free: int | None  # what any process could still take
    allocated: int | None  # in live tensors of this process and framework
    reserved: int | None  # taken from the device by the framework's allocator
    peak: int | None  # the most that was ever allocated
    # by process: "this process", "process 4711 (python)"
    holders: dict[str, int | None] | None


class Memory(Protocol):
    """The memory of devices: what the framework's allocator knows, and how much it takes."""

    def memory_stats(self, device: Device) -> MemoryStats:
        """What the framework knows.

        The core adds the other figures, and those of the host.
        """

    def empty_cache(self, device: Device | None) -> None: ...
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether this error says that the device has no memory left.

        Its causes do not count.
        """

    def share(self, fraction: float | None) -> dict[str, str]:
        """Take the GPUs' memory when needed, at most that fraction of each.

        Returns the settings that it made, with their values. Raises
        `TooLateError` if the framework has taken its memory already.
        """
