"""Virtual GPUs: which are requested, and what a program did with their memory."""

from typing import Any, NamedTuple, Protocol, TypeAlias

from xdevice.device import Device

__all__ = [
    "MemoryPart",
    "MemoryUse",
    "PeakMemory",
    "ProgramStopped",
    "Request",
    "Virtual",
]

Recipe: TypeAlias = Any
"""An `xdevice.virtual.plugins.Recipe`: how a plug-in is compiled. ``None`` if there is none."""


class Request(NamedTuple):
    """The virtual GPUs that a process, and the processes that it starts, are to have.

    It is made once, from a call, a command's options or the environment, and handed down.
    """

    number: int  # ``gpu:0`` … ``gpu:number-1`` are virtual; 0 for none
    force: bool = False  # they hide real GPUs
    stand_in: bool = False  # they stand in for real GPUs, and refuse what these refuse
    lenient: bool = False  # GPUs that stand in refuse nothing that the CPU can compute
    races: bool = False  # missing synchronization between streams is an error
    model: str = ""  # the model of GPU whose properties the GPUs that stand in have
    memory: int | None = None  # the bytes that each has; ``None``: there is no limit
    # the frameworks whose programs end if they are refused virtual GPUs; "all" for every one
    required: tuple[str, ...] = ()
    source: str = ""  # the call, the option, or the variable with its value, that makes the request
    # how many there are, of which CUDA_VISIBLE_DEVICES shows ``number``; known to a framework only
    total: int = 0


class MemoryPart(NamedTuple):
    """What one line of the program had allocated of one kind when the most was allocated."""

    kind: str  # "weights", "gradients", "optimizer state", "workspaces", or "other"
    file: str  # empty where no line of the program is known
    line: int
    nbytes: int
    library: str = ""  # the innermost file of another library that the line called, if any
    library_line: int = 0


class PeakMemory(NamedTuple):
    """The most memory of one GPU that a program used, in bytes."""

    device: Device
    allocated: int
    reserved: int  # the most that the allocator has taken from the GPU
    file: str  # the line of the program that allocated last before the peak
    line: int
    phase: str  # "forward", "no_grad", "backward", "step", or empty where it is not known
    parts: tuple[MemoryPart, ...]  # empty where only the total is known
    # the most with the temporary memory of kernels, if a bound of that is known
    with_temporary: int = 0
    temporary: str = ""  # the kernels of `with_temporary`, such as "sorting"
    libraries: int = 0  # the most that libraries may have allocated themselves
    unlimited: int = 0  # `reserved` on a GPU so large that nothing cached has to be released


class MemoryUse(NamedTuple):
    """What a program did with the memory of its GPUs."""

    peaks: tuple[PeakMemory, ...]
    steps: int | None  # of its optimizers; ``None`` without any, and where they are not counted
    float32_weights: int = 0  # bytes
    uses_autocast: bool = False
    host_shortage: str = ""  # what the host had no memory for
    kernels: tuple[str, ...] = ()  # what it computes by kernels with more temporary memory
    unmeasured: str = ""  # what the program did that is not counted, so that the peak may be missed
    gpus: tuple[int, ...] = ()  # the index of each visible GPU among all, where some are hidden
    # The lines that read values that were not computed, as 0, and whether some were integers;
    # and where the program was ended, because such values decide on what follows.
    reads: tuple[tuple[str, int, bool], ...] = ()
    undecided: str = ""


class ProgramStopped(BaseException):
    """Ends a program that has run for long enough."""


class Virtual(Protocol):
    """Virtual GPUs: devices of their own, backed by host memory.

    `before_loading` loads this capability; no callback is called for it.
    """

    def enable(self, request: Request) -> None:
        """Make the virtual GPUs of the request in this process, for this framework.

        Those that stand in also have the framework's own names for its
        GPUs, its functions that ask about GPUs describe them, and GPU 0 is the
        default device where a real one would be. After a successful call there
        is no second one. Raises `VirtualDeviceError` if it is too late, or if
        there are real GPUs without ``request.force``; `NotSupportedError` if
        this system cannot have virtual GPUs, or not those of the request.
        """

    def recipe(self) -> Recipe:
        """How the plug-in is compiled.

        ``None`` if no plug-in is needed. Raises `NotSupportedError` if this
        version of the framework, or this system, cannot have virtual GPUs.
        """

    def hides_gpus(self) -> str:
        """What has told the framework to use the CPU alone, as a program does for real GPUs.

        Empty if nothing has. It is asked before `enable`, for those that stand in.
        """

    def find_races(self) -> None:
        """From now on, a race between streams is an error.

        There is a race if a stream uses a tensor of another one without
        waiting for it.
        """

    def measure_memory(
        self, soft_limit: int, stop_after: int | None, computes: bool, totals: Any
    ) -> None:
        """From now on, record what is allocated when the most is.

        Without ``computes``, large tensors have no values, and operations on
        them are not computed. A program that reads such a value gets 0; if it
        decides on shapes or on what follows, the program ends.

        A GPU's memory may exceed the limit, but only after the allocator has
        released what it caches. With ``stop_after``, `ProgramStopped` is raised
        after that number of an optimizer's steps. ``totals`` is an array of
        64-bit integers, one for each GPU. The most bytes that have been
        reserved are written into it at once. The function is called again, with
        another array, in a child by fork.
        """

    def memory_use(self) -> MemoryUse:
        """What was used, by this process and not by the one that has forked it."""
