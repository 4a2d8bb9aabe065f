"""``torch.vgpu``, the counterpart of ``torch.cuda`` for virtual GPUs.

torch looks up some of these functions by name: for seeds, checkpoints, autocast and DataParallel.
"""

from types import SimpleNamespace
from typing import Any

import torch

from xdevice.virtual.torch import runtime, streams
from xdevice.virtual.torch.runtime import NAME, DeviceLike, exchange, in_use, index_of

Stream = streams.Stream
Event = streams.Event
stream = streams.stream
current_stream = streams.current_stream
default_stream = streams.default_stream
set_stream = streams.set_stream


def is_available() -> bool:
    return in_use().count > 0


def is_initialized() -> bool:
    """Whether a virtual GPU has been used. Until then `DeviceMesh` sets the current device."""
    return in_use().is_used()


def init() -> None:
    in_use().use(True)


def __getattr__(name: str) -> Any:
    if name == "_initialized":  # gradient checkpointing saves random states only if it is true
        return in_use().is_used()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def device_count() -> int:
    return in_use().count


def current_device() -> int:
    init()
    return in_use().current()


def set_device(device: DeviceLike) -> None:
    exchange(index_of(device))


class device:  # noqa: N801  (torch.cuda.device is written so)
    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if isinstance(device, int) and device < 0 else index_of(device)

    def __enter__(self) -> None:
        self.prev_idx = exchange(self.idx)

    def __exit__(self, *error: object) -> None:
        exchange(self.prev_idx)


class device_of(device):  # noqa: N801  (as in torch.cuda)
    """Make the tensor's device current within a ``with`` block, if it is a virtual GPU."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.get_device() if tensor.device.type == NAME else -1)


def synchronize(device: DeviceLike = None) -> None:
    """Does nothing but check the device: operations are synchronous."""
    index_of(device)


def get_device_name(device: DeviceLike = None) -> str:
    return f"virtual GPU {index_of(device)}"


def get_device_properties(device: DeviceLike = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=get_device_name(device), total_memory=mem_get_info(device)[1], is_virtual=True
    )


def mem_get_info(device: DeviceLike = None) -> tuple[int | None, int | None]:
    """Free and total memory in bytes, ``None`` where unknown.

    They are the host's if the virtual GPU has no limit.
    """
    return runtime.memory_info(index_of(device))


def memory_allocated(device: DeviceLike = None) -> int:
    return in_use().allocated(index_of(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    return in_use().peak(index_of(device))


memory_reserved = memory_allocated  # freed memory is returned to the host immediately


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    in_use().reset_peak(index_of(device))


def empty_cache() -> None:
    """Does nothing: freed memory is returned to the host immediately."""


def manual_seed(seed: int) -> None:
    _generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed every virtual GPU; ``torch.manual_seed`` does this too."""
    for generator in in_use().generators:
        generator.manual_seed(seed)


def seed() -> int:
    return _generator().seed()


def initial_seed() -> int:
    return _generator().initial_seed()


def _generator(device: DeviceLike = None) -> "torch.Generator":
    return in_use().generators[index_of(device)]


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [generator.get_state() for generator in in_use().generators]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = None) -> None:
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    for generator, state in zip(in_use().generators, new_states, strict=True):
        generator.set_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return including_emulation


def _is_in_bad_fork() -> bool:  # torch asks for it by name
    return in_use().is_forked()
