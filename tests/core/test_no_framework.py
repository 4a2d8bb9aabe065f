"""xdevice alone, with no framework at all and no NumPy: the tox environment `core`."""

import pytest

import xdevice

pytestmark = pytest.mark.skipif(
    bool(xdevice.available()), reason="a framework is installed; `tox -e core` has none"
)

CALLS = [
    lambda: xdevice.backend(),
    lambda: xdevice.count(),
    lambda: xdevice.num_gpus(),
    lambda: xdevice.devices(),
    lambda: xdevice.try_gpu(),
    lambda: xdevice.try_all_gpus(),
    lambda: xdevice.native("cpu"),
    lambda: xdevice.properties("cpu"),
    lambda: xdevice.synchronize(),
    lambda: xdevice.virtual_gpus(2),
    lambda: xdevice.zeros(3),
    lambda: xdevice.tensor([1.0]),
    lambda: xdevice.seed(1),
    lambda: xdevice.memory_stats("cpu"),
    lambda: xdevice.empty_cache(),
    lambda: xdevice.Timer(),
    lambda: xdevice.cpu().__enter__(),
    lambda: xdevice.scope("cpu").__enter__(),
]


@pytest.mark.parametrize("call", CALLS)
def test_each_call_says_what_to_install(call):
    with pytest.raises(xdevice.BackendNotInstalledError, match=r"pip install \w+$"):
        call()


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("paddle", "paddlepaddle"),
        ("mxnet", "--no-deps mxnet==1.9.1, and pip install requests graphviz"),
        *[(name, name) for name in ("torch", "tensorflow", "jax", "numpy")],
    ],
)
def test_choosing_one_says_how_to_install_it(name, package):
    with pytest.raises(xdevice.BackendNotInstalledError, match=rf"pip install {package}$"):
        xdevice.use(name)


def test_nothing_is_available():
    assert xdevice.available() == []


def test_what_needs_no_framework_works():
    assert xdevice.Device("cuda:1") is xdevice.gpu(1)
    assert xdevice.is_out_of_memory(MemoryError())
    assert xdevice.find_batch_size(lambda size: size, start=4)() == 4
    with pytest.raises(xdevice.NotATensorError):
        xdevice.device_of([1, 2])
