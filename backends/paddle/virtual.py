"""Virtual GPUs under PaddlePaddle: a custom device, ``vgpu``, from a plug-in that is compiled here.

The plug-in is in place before PaddlePaddle is imported (see ``__init__.py`` and ``plug_in.py``); afterwards
it is too late. Kernels are the CPU's, to which PaddlePaddle falls back for a device that has none.
"""

from __future__ import annotations

from xdevice.backends.paddle import hardware
from xdevice.errors import VirtualDeviceError


def enable(n: int, force: bool) -> None:
    real = hardware.real_gpus()
    if real and not force:
        raise VirtualDeviceError(
            f"{n} virtual GPUs were asked for, but paddle sees {real} real; use these, or hide them with "
            f"virtual_gpus({n}, force=True)"
        )
    if hardware.plugged_in() != n:
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for paddle, which has been imported without them; before `import paddle` "
            f"write xdevice.use('paddle') and xdevice.virtual_gpus({n}), or start with XDEVICE_VIRTUAL_GPUS={n} and "
            f"import it by xdevice.backend('paddle').framework"
        )
    hardware.name_virtual(n)
