"""A device may have fewer dtypes than its framework, as Apple's GPUs have no float64; here an adapter's GPU has."""

import textwrap

import pytest

ADAPTER = {
    "toy.py": """
        __version__ = "1"
        class Tensor:
            def __init__(self, shape, dtype, where):
                self.shape, self.dtype, self.where = shape, dtype, where
            def __add__(self, other): return self
        broken = False
        broken = False
    """,
    "xdevice_toy/placement.py": """
        import toy
        from xdevice import Device
        def category(cls): return "tensor" if issubclass(cls, toy.Tensor) else None
        def device_of(x): return x.where
        def move(x, device, non_blocking):
            from xdevice_toy.creation import ones
            return ones(x.shape, x.dtype, device)
    """,
    "xdevice_toy/creation.py": """
        import numpy as np, toy
        from xdevice import Device
        from xdevice.backends.numpy.creation import dtype
        def ones(shape, dtype, device):
            on_gpu = device is not None and device.kind == "gpu"
            if on_gpu and toy.broken:
                raise RuntimeError("the toy's GPU is broken")
            if on_gpu and np.dtype(dtype).name == "float64":
                raise TypeError("a toy's GPU has no float64")
            where = Device("cpu") if on_gpu and np.dtype(dtype).kind == "c" else device or Device("cpu")
            return toy.Tensor(shape, np.dtype(dtype), where)
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


def test_a_move_blames_the_dtype_only_if_the_device_has_others(tell):
    out = tell("""
        import toy
        def attempt():
            try: xdevice.to_device(xdevice.ones(2, dtype="float64", device="cpu"), "gpu:0")
            except Exception as error: print(type(error).__name__, error)
        attempt()
        toy.broken = True
        attempt()
    """)
    assert out[-2].startswith("ArgumentError gpu:0 has no float64 under toy")
    assert out[-1] == "RuntimeError the toy's GPU is broken"


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
