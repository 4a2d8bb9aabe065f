"""TensorLy: one run tests every framework on every device; moving and reading arrays come from xdevice."""

SKIP = r"pytest\.mark\.skipif\(\n +\(tl\.get_backend\(\) == \"tensorflow\"\),"


def change(tree):
    tree.file("conftest.py").append(
        """
        import pytest
        import tensorly


        @pytest.fixture(autouse=True)
        def backend(device_scope, xdevice_backend):
            name = "pytorch" if xdevice_backend == "torch" else xdevice_backend
            with tensorly.backend_context(name):
                yield name
        """
    )
    for path in (
        "solvers/tests/test_nnls",
        "solvers/tests/test_admm",
        "tenalg/tests/test_proximal",
    ):
        tests = tree.file(f"tensorly/{path}.py")
        tests.replace(SKIP, 'pytest.mark.skip_backends(\n    "tensorflow",')

    tree.file("tensorly/tenalg/tests/test_svd.py").replace(
        r'\[False\] if tl\.get_backend\(\) is "paddle" else \[True, False\]',
        '[pytest.param(True, marks=pytest.mark.skip_backends("paddle")), False]',
    )

    torch = tree.file("tensorly/backend/pytorch_backend.py")
    torch.replace_definition(
        "PyTorchBackend.to_numpy",
        """
        @staticmethod
        def to_numpy(tensor):
            if torch.is_tensor(tensor):
                return xdevice.to_numpy(tensor)
            return np.asarray(tensor)
        """,
    )
    torch.replace("^import numpy as np$", "import numpy as np\nimport xdevice")

    paddle = tree.file("tensorly/backend/paddle_backend.py")
    paddle.replace("^import numpy as np$", "import numpy as np\nimport xdevice")
    paddle.replace_lines(
        'if driver != "gels" and paddle',
        "warnings.warn",
        """
        device = xdevice.device_of(a)
        if driver != "gels" and device.kind != "cpu":
            # NOTE: Paddle only supports 'gels' on CUDA.
            with xdevice.cpu():  # Paddle looks at the current device
                found = paddle.linalg.lstsq(
                    *xdevice.to_device((a, b), "cpu"), rcond=rcond, driver=driver
                )
            sol, res, rank, single_value = xdevice.to_device(found, device)
            warnings.warn(
        """,
    )
    paddle.replace(r"falling back to \{fallback_device\} as", "falling back to the CPU as")
    paddle.replace(r"only supported on \{fallback_device\}, ", "only supported there, ")
