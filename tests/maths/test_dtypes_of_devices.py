"""A device may have fewer dtypes than its framework, as Apple's GPUs have no float64; here an adapter's GPU has."""

import textwrap

import pytest

ADAPTER = {
    "toy.py": """
        import numpy as np
        __version__ = "1"
        class Tensor(np.ndarray):
            where = None
    """,
    "xdevice_toy/placement.py": """
        import toy
        from xdevice import Device
        def category(cls): return "tensor" if issubclass(cls, toy.Tensor) else None
        def device_of(x): return x.where
    """,
    "xdevice_toy/creation.py": """
        import numpy as np, toy
        from xdevice import Device
        from xdevice.backends.numpy.creation import dtype
        def ones(shape, dtype, device):
            on_gpu = device is not None and device.kind == "gpu"
            if on_gpu and np.dtype(dtype).name == "float64":
                raise TypeError("a toy's GPU has no float64")
            made = np.ones(shape, dtype).view(toy.Tensor)
            made.where = Device("cpu") if on_gpu and np.dtype(dtype).kind == "c" else device or Device("cpu")
            return made
    """,
    "xdevice_toy/maths.py": """
        from xdevice.backends.numpy.maths import module, namespace
    """,
}


@pytest.fixture
def tell(toy_path, run):
    for name, text in ADAPTER.items():
        (toy_path / name).write_text(textwrap.dedent(text))

    def tell(code):
        start = "xdevice.virtual_gpus(1); xdevice.use('toy'); info = xdevice.namespace().__array_namespace_info__()\n"
        return run(start + textwrap.dedent(code)).splitlines()

    return tell


def test_a_device_lists_the_dtypes_that_it_has(tell):
    out = tell("""
        lacking = lambda device=None: sorted(set(info.dtypes()) - set(info.dtypes(device=device)))
        print(len(info.dtypes()), lacking("cpu:0"), lacking("gpu:0"))
        print(list(info.dtypes(device="gpu", kind=("bool", "real floating"))), *info.devices())
        with xdevice.scope("gpu:0"):
            print("float64" in info.dtypes(), "float64" in info.dtypes(device="cpu"))
    """)
    assert out[-3:] == [
        "13 [] ['complex128', 'complex64', 'float64']",  # the first raises, the others go to the CPU
        "['bool', 'float32'] cpu:0 gpu:0",
        "False True",
    ]


def test_a_device_that_is_not_there_has_no_dtypes(tell):
    out = tell("""
        for device in ("gpu:7", "gpu:x"):
            try: info.dtypes(device=device)
            except xdevice.XDeviceError as error: print(type(error).__name__, error)
    """)
    assert out[-2].startswith("DeviceNotFoundError gpu:7 does not exist under toy")
    assert out[-1].startswith("DeviceSpellingError 'gpu:x'")
