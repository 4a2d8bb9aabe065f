"""PennyLane: its tests on a GPU run on each device, so that they run on the second GPU as well."""

CUDA = r"torch\.device\(\"cuda\"\)"
CONFTEST = """
import pytest
import xdevice


@pytest.fixture
def device(xdevice_device):
    return xdevice.native(xdevice_device)
"""


def change(tree):
    tree.file("tests/gpu/conftest.py").append(CONFTEST)
    tests = tree.file("tests/gpu/test_gpu_torch.py")
    tests.replace("^torch_cuda = .*\n", "")
    tests.replace("^pytestmark_gpu = .*\n", "")
    tests.replace("^pytestmark_torch = ", "pytestmark = ")
    tests.replace(r"^@pytest\.mark\.skipif\(not torch_cuda.*\n", "", times=2)
    tests.replace_lines(r"not torch_cuda\.is_available\(\) or", "reason=")
    tests.replace(r"^@pytest\.mark\.skipif\(\n\)\n", "")
    # On each device, what the tests of several GPUs say of the second one.
    tests.remove(
        "TestTorchMultiGPUDevice.test_multi_gpu_outval",
        "TestTorchMultiGPUDevice.test_multi_gpu_concat",
    )
    tests.replace('device="cuda:0"', "device=xdevice.native(two_gpus[0])")
    tests.replace('device="cuda:1"', "device=xdevice.native(two_gpus[1])")
    tests.add_fixture("two_gpus", "two_gpus")
    tests.replace("^import pennylane as qp$", "import pennylane as qp\nimport xdevice")

    tests.replace(r'^ +@pytest\.mark\.parametrize\("par_device", .*\n', "")
    tests.replace("def test_matrix_conversion.*", "def test_matrix_conversion(self):")
    tests.replace("device=par_device", "device=device")
    tests.replace(r"U\.device\.type == par_device", "U.device == device")
    tests.add_fixture("device", rf"{CUDA}|device=device")
    tests.replace(CUDA, "device", times=None)
    tests.replace(r"assert (\w+(?:\.grad)?)\.is_cuda", r"assert \1.device == device", times=None)
    tests.replace(r"assert not (\w+)\.is_cuda", r'assert \1.device.type == "cpu"', times=None)

    dispatch = tree.file("tests/math/test_multi_dispatch.py")
    dispatch.replace(r'^@pytest\.mark\.parametrize\("dev", .*\n', "")
    dispatch.replace_lines('and dev == "cuda":', "pytest.skip")
    dispatch.replace(r"def test_array_cuda\(func, dev\)", "def test_array_cuda(func, device)")
    dispatch.replace("device=dev", "device=device")
    tree.file("tests/math/conftest.py").append(CONFTEST)
