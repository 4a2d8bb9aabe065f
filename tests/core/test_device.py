"""`Device`, the value: every spelling, and none that is malformed."""

import copy
import dataclasses
import operator
import pickle
import threading
import unittest.mock
from difflib import get_close_matches

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdevice import (
    Device,
    DeviceSpellingError,
    DeviceTypeError,
    XDeviceError,
    as_device,
    cpu,
    gpu,
    virtual_gpus,
)
from xdevice.device import MAX_INDEX

SPELLINGS = {
    "gpu:0": [
        "gpu",
        "gpu:0",
        "GPU",
        "GPU:0",
        "gpu(0)",
        "gpu()",
        "cuda",
        "cuda:0",
        "cuda(0)",
        "CUDA:0",
        "/GPU:0",
    ]
    + [
        "/gpu:0",
        "device:GPU:0",
        "/device:GPU:0",
        "/job:localhost/replica:0/task:0/device:GPU:0",
        "Place(gpu:0)",
    ]
    + [
        "Place(gpu)",
        "CudaDevice(id=0)",
        "rocm:0",
        "hip",
        "mps",
        "mps:0",
        "metal",
        "xpu:0",
        "RocmDevice(id=0)",
    ],
    "gpu:12": [
        "gpu:12",
        "cuda:12",
        "gpu(12)",
        "/GPU:12",
        "/job:worker/replica:0/task:3/device:GPU:12",
        "Place(gpu:12)",
    ]
    + ["CudaDevice(id=12)", "device(type='cuda', index=12)"],
    "cpu:0": [
        "cpu",
        "cpu:0",
        "CPU:0",
        "cpu()",
        "cpu(0)",
        "/CPU:0",
        "/device:CPU:0",
        "Place(cpu)",
        "TFRT_CPU_0",
        "device(type='cpu')",
    ]
    + ["CpuDevice(id=0)", "/job:localhost/replica:0/task:0/device:CPU:0"],
    "tpu:1": ["tpu:1", "TPU:1", "TpuDevice(id=1, process_index=0, coords=(1,0,0), core_on_chip=0)"],
    "cpu_pinned:0": ["cpu_pinned(0)", "cpu_pinned"],
    "meta:0": ["meta"],
}


@pytest.mark.parametrize(
    ("device", "spelling"), [(d, s) for d, all_of_it in SPELLINGS.items() for s in all_of_it]
)
def test_every_frameworks_spelling_is_one_device(device, spelling):
    assert Device(spelling) is Device(device)
    assert as_device(spelling) is Device(device)
    assert str(Device(spelling)) == device


MALFORMED = [
    "",
    " ",
    ":",
    ":0",
    "gpu:",
    "gpu:-1",
    "gpu:x",
    "gpu:1.0",
    "gpu:1.5",
    "gpu 0",
    "gpu:0:1",
    "gpu0",
    "0",
    "1:gpu",
    "gpu:01",
]
MALFORMED += [
    "gpu: 0",
    " gpu",
    "gpu\n",
    "gpu(0",
    "gpu(-1)",
    "gpu(0))",
    "Place()",
    "/job:a/device:GPU:0/",
    "/job:worker",
    "/job:agpu:1",
    "/job:0",
    "/job:a/task:0",
    "/job:a/task:0gpu:1",
    "//GPU:0",
    "gpu:٣",
    "gpu:1_0",
]
MALFORMED += [
    "gpu:+1",
    "_gpu",
    "cuda:",
    "cuda::0",
    "TFRT_CPU_",
    "CpuDevice(id=)",
    "cpu[0]",
    "gpu;0",
    "gpu:2147483648",
    "gpu:" + "9" * 40,
]


@pytest.mark.parametrize("spelling", MALFORMED)
def test_a_malformed_spelling_is_shown(spelling):
    with pytest.raises(DeviceSpellingError) as error:
        Device(spelling)
    assert isinstance(error.value, ValueError)
    assert repr(spelling) in str(error.value)


def test_an_index_without_its_colon_is_told_the_spelling():
    with pytest.raises(DeviceSpellingError, match="did you mean 'cuda:1'"):
        Device("cuda1")


@pytest.mark.parametrize("index", [-1, -(10**30), MAX_INDEX + 1, 10**30])
def test_an_index_out_of_range_is_shown(index):
    for build in (lambda: Device("gpu", index), lambda: gpu(index)):
        with pytest.raises(DeviceSpellingError, match=str(index)):
            build()


@pytest.mark.parametrize(
    "index", [1.0, 0.5, True, False, "1", "gpu:1", float("nan"), [1], object()]
)
def test_an_index_not_an_integer_is_shown(index):
    with pytest.raises(DeviceTypeError) as error:
        Device("gpu", index)
    assert isinstance(error.value, TypeError)
    assert isinstance(error.value, ValueError)
    assert repr(index) in str(error.value)


@pytest.mark.parametrize("kind", [0, None, 1.5, True, ["gpu"], b"gpu", cpu()])
def test_the_kind_must_be_a_string(kind):
    with pytest.raises(DeviceTypeError):
        Device(kind)


@pytest.mark.parametrize("kind", ["gpu:0", "gpu0", "", "/GPU", "_", "gpu()"])
def test_a_kind_beside_an_index_is_a_word(kind):
    with pytest.raises(DeviceSpellingError):
        Device(kind, 0)


@pytest.mark.parametrize("thing", [0, None, 1.5, True, object(), [], {}, int])
def test_what_is_not_a_device_is_an_error(thing):
    with pytest.raises(DeviceTypeError) as error:
        as_device(thing)
    assert isinstance(error.value, XDeviceError)


@pytest.mark.parametrize(("spelling", "meant"), [
    ("gpuu:0", "gpu"), ("gpus", "gpu"), ("GPUU:1", "gpu"), ("cpuu", "cpu"), ("/device:GPUU:1", "gpu"),
    ("Place(gpuu:0)", "gpu"), ("cudaa:1", "cuda"), ("cud", "cuda"), ("cdua:0", "cuda"),
    ("rocmm", "rocm"), ("metall", "metal"),
])  # fmt: skip
def test_a_misspelt_kind_says_what_was_meant(spelling, meant):
    for call in (Device, as_device):
        with pytest.raises(DeviceSpellingError) as error:
            call(spelling)
        assert (
            str(error.value)
            == f"{spelling!r} names an unknown kind of device; did you mean {meant!r}?"
        )
    assert Device(meant) != spelling


@pytest.mark.parametrize(
    "kind",
    [
        "meta",
        "npu",
        "hpu",
        "ipu",
        "xla",
        "mlu",
        "gcu",
        "musa",
        "mtia",
        "hip",
        "vgpu",
        "vpu",
        "a",
        "gp10",
        "fpga",
    ],
)
def test_a_frameworks_own_kind_is_not_misspelt(kind):
    assert Device(kind).kind in (kind, "gpu")


def test_a_misspelt_kind_is_refused_however_it_is_written():
    for make in (lambda: Device("cdua", 1), lambda: Device("cdua:1"), lambda: as_device("CDUA(1)")):
        with pytest.raises(DeviceSpellingError, match="did you mean 'cuda'"):
            make()


def test_any_index_may_be_built_anywhere():
    assert gpu(7) == Device("gpu:7")
    assert Device("gpu", MAX_INDEX).index == MAX_INDEX


KNOWN = {"rocm", "hip", "mps", "metal", "xpu", "cuda", "cpu", "gpu", "tpu", "vgpu"}
kinds = st.from_regex(r"[a-z](_?[a-z]){0,8}", fullmatch=True).filter(
    lambda k: (
        k not in KNOWN and not get_close_matches(k, KNOWN, 1, 0.75)
    )  # what is nearly one of them is misspelt
)
devices = st.builds(Device, kinds, st.integers(0, MAX_INDEX))


@given(devices)
def test_printed_devices_can_be_read_back(device):
    assert Device(str(device)) is device
    assert eval(repr(device)) is device
    assert Device(f"{device.kind}({device.index})") is device
    assert (
        Device(f"/job:localhost/replica:0/task:0/device:{device.kind.upper()}:{device.index}")
        is device
    )
    assert Device(f"Place({device})") is device
    assert Device(device.kind, device.index) is device
    assert pickle.loads(pickle.dumps(device)) is device
    assert copy.deepcopy(device) is copy.copy(device) is device


@given(st.text(max_size=20))
def test_any_text_is_a_device_or_a_clear_error(text):
    try:
        device = Device(text)
    except DeviceSpellingError as error:
        assert repr(text) in str(error)
    else:
        assert Device(str(device)) is device


@given(devices, devices)
def test_ordered_by_kind_then_index(a, b):
    ka, kb = (a.kind, a.index), (b.kind, b.index)
    assert (a < b, a <= b, a > b, a >= b, a == b) == (
        ka < kb,
        ka <= kb,
        ka > kb,
        ka >= kb,
        ka == kb,
    )
    assert (hash(a) == hash(b)) >= (a == b)


def test_equal_to_its_spellings_only():
    assert gpu(1) == "cuda:1"
    assert cpu() == "cpu"
    assert gpu(0) != "cuda:1"
    assert operator.eq("/GPU:1", gpu(1))
    assert operator.ne("gpu:1", gpu(0))
    assert not operator.ne(cpu(), "cpu:0")
    for malformed in MALFORMED:
        assert gpu(0) != malformed
        assert malformed != gpu(0)


def test_equal_to_devices_only():
    for thing in (None, 0, 0.5, b"cpu", object(), ["cpu"], ("cpu", 0), Device, int):
        assert cpu() != thing
        assert thing != cpu()
    assert cpu() not in [0, None, gpu(0)]
    assert "cuda" in [cpu(), gpu(0)]


def test_the_other_operand_may_decide():
    assert cpu() == unittest.mock.ANY


def test_a_device_hashes_as_a_device_only():
    assert hash(gpu(1)) == hash(Device("cuda:1"))
    assert len({gpu(1), Device("cuda:1"), cpu()}) == 2
    assert "gpu:1" not in {gpu(1)}


@pytest.mark.parametrize(
    "index", [10**4400, -(10**4400), 10**30], ids=["10**4400", "-10**4400", "10**30"]
)
def test_an_index_too_long_to_print(index):
    for build in (
        lambda: gpu(index),
        lambda: Device("gpu", index),
        lambda: Device(f"gpu:{'9' * 5000}"),
    ):
        with pytest.raises(DeviceSpellingError) as error:
            build()
        assert len(str(error.value)) < 200
    with pytest.raises(XDeviceError):
        virtual_gpus(index)


def test_not_ordered_against_other_things():
    for compare in (
        lambda: cpu() < "gpu",
        lambda: cpu() <= 1,
        lambda: cpu() > None,
        lambda: cpu() >= (),
    ):
        with pytest.raises(TypeError):
            compare()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: setattr(d, "index", 3),
        lambda d: setattr(d, "new", 1),
        lambda d: delattr(d, "kind"),
    ],
)
def test_a_device_never_changes(change):
    with pytest.raises(dataclasses.FrozenInstanceError):
        change(gpu(1))
    assert (gpu(1).kind, gpu(1).index) == ("gpu", 1)


def test_str_and_format_are_the_spelling():
    assert f"{gpu(1)} {gpu(1):>6} {gpu(1)!r}" == "gpu:1  gpu:1 Device('gpu:1')"


def test_a_device_can_be_matched():
    match gpu(2):
        case Device("gpu", index):
            assert index == 2


def test_threads_get_one_object():
    for index in range(1000, 1200):
        found, ready = [], threading.Barrier(4)

        def build(index=index, found=found, ready=ready):
            ready.wait()
            found.append(Device(f"gpu:{index}"))

        threads = [threading.Thread(target=build) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, found))) == 1
