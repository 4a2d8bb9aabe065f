"""What only array-api-strict does."""

import array_api_strict
import pytest

import xdevice

DEVICES = ["cpu", "device1", "device2", "no_float64", "no_x64"]


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("strict"):
        yield


def test_its_devices_have_its_own_names_and_are_no_gpus():
    assert xdevice.devices() == [xdevice.Device(kind, 0) for kind in DEVICES]
    assert xdevice.count("gpu") == 0
    assert xdevice.try_gpu() == xdevice.cpu()
    for name in DEVICES[1:]:
        native = array_api_strict.Device(name)
        assert xdevice.as_device(native) == name
        assert xdevice.native(name) == native
        assert xdevice.device_of(array_api_strict.ones(1, device=native)) == name
        assert xdevice.properties(name)["virtual"] is False


def test_the_dtypes_of_a_device_are_those_that_array_api_strict_lists():
    ours = xdevice.namespace().__array_namespace_info__()
    its = array_api_strict.__array_namespace_info__()
    for device in xdevice.devices():
        listed = its.dtypes(device=xdevice.native(device))
        assert ours.dtypes(device=device) == listed
        expected = its.default_dtypes(device=xdevice.native(device))
        given = ours.default_dtypes(device=device)
        assert given["real floating"] == expected["real floating"]
        assert given["integral"] == expected["integral"]
    assert "float64" not in ours.dtypes(device="no_float64")
    assert "int64" not in ours.dtypes(device="no_x64")


def test_no_index_is_computed_on_no_x64():
    """When this fails, `default_dtypes` and its `indexing` need no exception any more."""
    with pytest.raises(ValueError, match="int64"):
        array_api_strict.argmax(xdevice.ones(3, device="no_x64"))
    info = xdevice.namespace().__array_namespace_info__()
    assert "indexing" not in info.default_dtypes(device="no_x64")
    assert "indexing" in info.default_dtypes(device="device1")


def test_a_dtype_that_a_device_lacks_is_an_error_that_names_both():
    x = xdevice.ones(3, dtype="float64")
    with pytest.raises(xdevice.ArgumentError, match=r"no_float64:0 has no .*float64.*convert it"):
        xdevice.to_device({"x": x}, "no_float64")
    with pytest.raises(xdevice.ArgumentError, match="no_x64"):
        xdevice.ones(3, dtype="int64", device="no_x64")
    assert xdevice.device_of(x) == xdevice.cpu()


def test_what_the_standard_does_not_promise_is_refused():
    x = xdevice.ones((2, 3), device="device1")
    xp = xdevice.namespace(x)
    with pytest.raises(IndexError):
        x[0]
    with pytest.raises(TypeError):
        xp.add(x, xp.arange(3, device="device1"))
    with pytest.raises(ValueError, match="device"):
        xp.add(x, xdevice.ones((2, 3)))


def test_mixed_devices_under_strict_name_the_operation_and_both_devices():
    x, y = xdevice.ones(3, device="device1"), xdevice.ones(3)
    calls = {
        "add": lambda: x + y,
        "concat": lambda: array_api_strict.concat([x, y]),
        "matmul": lambda: array_api_strict.linalg.matmul(x, y),
        "setitem": lambda: x.__setitem__(..., y),
    }
    for name, call in calls.items():
        with xdevice.strict(), pytest.raises(xdevice.MixedDeviceError, match=f"^{name} ") as error:
            call()
        assert error.value.devices == {xdevice.cpu(), xdevice.Device("device1")}
        with pytest.raises(ValueError, match="device"):
            call()


def test_its_short_name_means_it_everywhere():
    assert xdevice.backend("strict") is xdevice.backend("array_api_strict")
    assert xdevice.backend() == "array_api_strict"
    assert xdevice.native("device1", "strict") == array_api_strict.Device("device1")
    assert xdevice.convert(xdevice.ones(2), "strict").device == array_api_strict.Device()


def test_its_import_does_not_choose_it(tmp_path):
    import subprocess
    import sys

    code = "import array_api_strict, xdevice; print(xdevice.backend())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == xdevice.available()[0] != "array_api_strict"


def test_virtual_gpus_are_two_at_most_and_do_not_stand_in(tmp_path):
    import subprocess
    import sys

    code = """
import array_api_strict, xdevice
xdevice.use("strict")
for ask in (lambda: xdevice.virtual_gpus(3), lambda: xdevice.virtual_gpus(1, stand_in=True)):
    try:
        ask()
    except xdevice.NotSupportedError as error:
        print(error)
print(xdevice.virtual_gpus(1), xdevice.devices(), xdevice.try_gpu())
print(xdevice.device_of(array_api_strict.ones(1, device=array_api_strict.Device("device1"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    three, stand_in, devices, where = done.stdout.splitlines()
    assert three.startswith("array_api_strict can have 2 virtual GPUs, device1 and device2")
    assert stand_in.startswith("array_api_strict has no names for GPUs")
    assert "Device('gpu:0')" in devices
    assert "device1" not in devices
    assert "device2" in devices
    assert where == "gpu:0"
