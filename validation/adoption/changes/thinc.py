"""Thinc: the tests of its gradient scaler for PyTorch run on each GPU, instead of the current one.

Its other tests on a GPU are CuPy's, for which there are no virtual GPUs.
"""


def change(tree):
    tests = tree.file("thinc/tests/shims/test_pytorch_grad_scaler.py")
    tests.replace(r'^@pytest\.mark\.skipif\(not has_torch, reason="needs PyTorch"\)\n', "", times=4)
    tests.replace(
        r'^@pytest\.mark\.skipif\(not has_torch_cuda_gpu, reason="needs a GPU"\)$',
        "@pytest.mark.skip_backends(gpu_only=True)",
        times=2,
    )
    tests.replace("has_torch, has_torch_amp, has_torch_cuda_gpu, torch", "has_torch_amp, torch")
    tests.replace(
        r"^def tensors\(\):$", r'pytestmark = pytest.mark.only_backends("torch")\n\n\n\g<0>'
    )
    tests.add_fixture("native_device", r"cuda\.current_device")
    tests.replace(r"^    device_id = torch\.cuda\.current_device\(\)\n\n?", "", times=2)
    tests.replace("device=device_id", "device=native_device", times=None)
    tests.replace(r"\.to_\(device_id\)", ".to_(native_device)", times=2)
    tests.replace(r"torch\.tensor\(\[1\.0\]\)\.cuda\(\)", "torch.tensor([1.0]).to(native_device)")
    # Hypothesis makes the numbers, which the fixture cannot reach.
    tests.replace(r"torch\.tensor\(a\)\.cuda\(\)", "torch.tensor(a)")
    tests.replace(
        "^(    scaler = PyTorchGradScaler.*\n.*\n\n)(    if is_torch_array)",
        r"    X = xdevice.to_device(X, native_device)\n\1\2",
    )
    tests.replace("^import pytest$", "import pytest\nimport xdevice")

    conftest = tree.file("thinc/tests/conftest.py")
    conftest.replace_definition(
        "pytest_sessionstart",
        """
        def pytest_sessionstart(session):
            # TensorFlow and others allocate no more of the GPU's memory than they need.
            xdevice.share_gpus()
        """,
    )
    conftest.replace("^import pytest$", "import pytest\nimport xdevice")
