"""Virtual GPUs under PaddlePaddle: a custom device, ``vgpu``, from a plug-in that is compiled here.

PaddlePaddle loads plug-ins only while it is imported, so the adapter's ``__init__.py`` uses `plug_in` first; nothing
here imports PaddlePaddle before `enable` is called. The device has no kernels of its own: PaddlePaddle uses the CPU's.
"""

from xdevice.backends.paddle.virtual import plug_in
from xdevice.errors import VirtualDeviceError
from xdevice.kit.private_names import check

recipe = plug_in.recipe


def enable(n: int, force: bool, stand_in: bool) -> None:
    from xdevice.backends.paddle import hardware, private_names
    from xdevice.backends.paddle.virtual import repairs

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
    names = private_names.STAND_IN if stand_in else private_names.VIRTUAL
    check(names, "paddle", hardware.build()["version"], private_names.LAST_TRIED, imported_only=False)
    hardware.virtual.number, hardware.virtual.stand_in = n, stand_in
    repairs.apply()
    if stand_in:
        from xdevice.backends.paddle.virtual import stand_in as gpus_of_paddle

        gpus_of_paddle.start(n)
