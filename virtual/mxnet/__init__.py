"""Virtual GPUs under MXNet: CPU contexts, from 1001 on.

``gpu:i`` is MXNet's ``cpu(1001 + i)``, which has its own memory. MXNet needs no preparation for
them, so they can be enabled at any time. Where they stand in, ``mx.gpu(i)`` means them
(`stand_in`).
"""

from xdevice.backends.mxnet import hardware, placement
from xdevice.backends.mxnet.private_names import names as names_of_the_adapter
from xdevice.device import Device, spell
from xdevice.virtual.mxnet import profiling
from xdevice.virtual.mxnet.private_names import names
from xdevice.virtual.request import refuse_memory_limit, refuse_to_hide


def recipe() -> None:
    return None  # nothing is compiled


def enable(n: int, force: bool, stand_in: bool) -> None:
    refuse_to_hide(hardware.gpus(), n, "mxnet", force)
    refuse_memory_limit("mxnet", ", or choose torch or paddle, which have it")
    if stand_in:
        names.check("STAND_IN")
        names_of_the_adapter.check("OTHERS")
    else:
        names.check("VIRTUAL")
    hardware.replaced_gpus.replace(n, under_own_names=stand_in)
    placement.device_at.cache_clear()  # from now on contexts mean other devices
    profiling.start()
    if stand_in:
        from xdevice.virtual.mxnet.stand_in import start

        start(n)
    for i in range(n):
        # only MXNet prints this
        spell(Device("gpu", i), [f"cpu({hardware.FIRST_VIRTUAL + i})"])
