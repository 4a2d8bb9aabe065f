"""Virtual GPUs under array-api-strict: ``gpu:0`` is its ``device1``, and ``gpu:1`` its ``device2``.

They need no preparation, so they can be enabled at any time.
"""

from xdevice.backends.array_api_strict import hardware
from xdevice.errors import NotSupportedError
from xdevice.virtual.request import refuse_memory_limit


def recipe() -> None:
    return None  # nothing is compiled


def enable(n: int, force: bool, stand_in: bool) -> None:
    refuse_memory_limit("array_api_strict", ", or choose torch or paddle, which have it")
    names = hardware.GPUS
    if n > len(names):
        raise NotSupportedError(
            f"array_api_strict can have {len(names)} virtual GPUs, {' and '.join(names)}, "
            f"and not {n}; ask for {len(names)}"
        )
    if stand_in:
        raise NotSupportedError(
            "array_api_strict has no names for GPUs, so none can stand in for them; "
            f"ask for virtual_gpus({n})"
        )
    hardware.replaced_gpus.replace(n, under_own_names=False)
