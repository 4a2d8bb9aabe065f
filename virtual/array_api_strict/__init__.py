"""Virtual GPUs under array-api-strict: ``gpu:0`` is its ``device1``, and ``gpu:1`` its ``device2``.

They need no preparation, so they can be enabled at any time.
"""

from xdevice.backends.array_api_strict import hardware
from xdevice.contract import Request
from xdevice.errors import NotSupportedError
from xdevice.virtual.refusals import refuse_memory_limit


def recipe() -> None:
    return None  # nothing is compiled


def enable(request: Request) -> None:
    refuse_memory_limit(request, "array_api_strict", ", or choose torch or paddle, which have it")
    names, n = hardware.GPUS, request.number
    if n > len(names):
        raise NotSupportedError(
            f"array_api_strict can have {len(names)} virtual GPUs, {' and '.join(names)}, "
            f"and not {n}; ask for {len(names)}"
        )
    if request.stand_in:
        raise NotSupportedError(
            "array_api_strict has no names for GPUs, so none can stand in for them; "
            f"ask for virtual_gpus({n})"
        )
    hardware.replaced_gpus.replace(n, under_own_names=False)
