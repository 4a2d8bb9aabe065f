"""Virtual GPUs under MXNet: CPU contexts, from 1001 on.

``gpu:i`` is MXNet's ``cpu(1001 + i)``, which has memory of its own. MXNet needs no preparation for them, so
it is never too late. ``mx.gpu(i)`` means them where they stand in (`stand_in`).
"""

from xdevice.backends.mxnet import hardware, placement
from xdevice.backends.mxnet.private_names import names
from xdevice.device import Device, spell
from xdevice.virtual.request import refuse_memory_limit, refuse_to_hide


def recipe() -> None:
    return None  # nothing is compiled


def enable(n: int, force: bool, stand_in: bool) -> None:
    refuse_to_hide(hardware.gpus(), n, "mxnet", force)
    refuse_memory_limit("mxnet", ", or choose torch or paddle, which have it")
    if stand_in:
        names.check("STAND_IN", "READ", "OTHERS")
    hardware.replaced_gpus.replace(n, under_own_names=stand_in)
    placement.known.cache_clear()  # contexts stand for other devices from now on
    if stand_in:
        from xdevice.virtual.mxnet import (
            stand_in as gpus_of_mxnet,
        )  # replaces functions of the library

        gpus_of_mxnet.start(n)
    for i in range(n):
        spell(
            Device("gpu", i), [f"cpu({hardware.FIRST_VIRTUAL + i})"]
        )  # as MXNet, and nothing else, prints it
