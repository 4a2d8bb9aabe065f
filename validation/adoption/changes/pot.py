"""POT: devices and dtypes of each backend, and equal devices, come from xdevice.

Its tests of TensorFlow on a GPU repeat, line by line, tests that the other backends have already:
those run under TensorFlow as well, on each device.
"""

TESTS_OF_TENSORFLOW = {
    "test/test_ot.py": ["test_emd_emd2_devices_tf"],
    "test/test_1d_solver.py": ["test_wasserstein_1d_device_tf", "test_emd1d_device_tf"],
    "test/test_bregman.py": [
        "test_sinkhorn2_variants_device_tf",
        "test_wasserstein_bary_2d_device_tf",
        "test_wasserstein_bary_2d_debiased_device_tf",
    ],
    "test/gromov/test_gw.py": ["test_gromov_device_tf"],
    "test/sliced/test_sliced_distances.py": [
        "test_sliced_backend_device_tf",
        "test_max_sliced_backend_device_tf",
    ],
}


def change(tree):
    change_library(tree.file("ot/backend.py"))
    change_conftest(tree.file("test/conftest.py"))
    for path, names in TESTS_OF_TENSORFLOW.items():
        tree.file(path).remove(*names)
    change_skips(tree)
    change_lists_of_devices(tree)


def change_library(backend):
    backend.replace("^import numpy as np$", "import numpy as np\nimport xdevice")
    for framework in ("Numpy", "Jax", "Torch", "Cupy", "Tensorflow"):
        backend.remove(f"{framework}Backend.__type_list__")
    for framework in ("Jax", "Torch", "Cupy", "Tensorflow"):
        backend.remove(f"{framework}Backend.assert_same_dtype_device")
    backend.replace_definition(
        "Backend.__type_list__",
        '''
        @property
        def __type_list__(self):
            """One number of each dtype on each device."""
            with xdevice.using(xdevice.backend_of(self.zeros(1))):
                return [
                    xdevice.ones(1, dtype=dtype, device=device)
                    for device in xdevice.devices()
                    for dtype in ("float32", "float64")
                ]
        ''',
    )
    backend.replace_definition(
        "Backend.assert_same_dtype_device",
        """
        def assert_same_dtype_device(self, a, b):
            assert a.dtype == b.dtype, "Dtype discrepancy"
            xdevice.check_same_device(a, b)
        """,
    )
    backend.replace_lines(r"self\.__type_list__ = \[\]", r"^            \]")  # JAX
    for framework in ("torch.tensor", "cp.array", "tf.convert_to_tensor"):
        words = framework.replace(".", r"\.")
        backend.replace(
            rf"^        self\.__type_list__ = \[\n +{words}\((?:.*\n)+?        \]\n", ""
        )
    backend.replace(r"^ +self\.__type_list__\.append\(\n.*\n +\)\n", "", times=2)
    # Arrays without a `type_as` follow the default device, and those with one follow it.
    backend.replace(r"return torch\.from_numpy\(a\)", "return torch.asarray(a)")
    backend.replace(
        r"^( +)(return tf\.convert_to_tensor\(a, dtype=type_as\.dtype\))",
        r"\1with xdevice.device_of(type_as):\n\1    \2",
    )


def change_conftest(conftest):
    conftest.replace("^import os\n", "")
    conftest.replace("^import pytest$", "import pytest\nimport xdevice")
    conftest.replace("import get_backend_list, ", "import get_backend, ")
    conftest.replace(r'^    os\.environ\["XLA_.*\n', "")
    conftest.replace_lines("# make sure TF", "^$")
    conftest.replace_lines("physical_devices = ", "^$")
    conftest.replace("^if tf:", "xdevice.share_gpus()\n\nif tf:")
    conftest.remove("backend_list")
    conftest.replace(r"^print\(backend_list\)\n", "")
    conftest.replace_definition(
        "nx",
        """
        @pytest.fixture
        def nx(xdevice_backend):
            return get_backend(xdevice.ones(1))
        """,
    )
    conftest.remove("skip_arg", "pytest_configure")
    conftest.replace("^import functools\n", "")


def change_skips(tree):
    """Their decorators become the plugin's mark; two of an argument's values get it as well."""
    for tests in tree.files("test/**/test_*.py"):
        if "pytest.skip_backend" in tests.text:
            tests.replace(
                r'@pytest\.skip_backend\("tf"', '@pytest.skip_backend("tensorflow"', times=None
            ) if '"tf"' in tests.text else None
            tests.replace(r"@pytest\.skip_backend", "@pytest.mark.skip_backends", times=None)
    bregman = tree.file("test/test_bregman.py")
    bregman.replace(r"^@pytest\.skip_arg\(\n(?:    .*\n)+\)\n", "", times=4)
    for method in ("sinkhorn_epsilon_scaling", "greenkhorn"):
        bregman.replace(
            rf'^        "{method}",\n',
            f'        pytest.param("{method}", marks=pytest.mark.skip_backends("tensorflow", "jax")),\n',
            times=None,
        )


def change_lists_of_devices(tree):
    """The CPU and, if there is one, a GPU: all devices, under PyTorch."""
    for tests in tree.files("test/**/test_*.py"):
        if 'devices = [torch.device("cpu")]' in tests.text:
            tests.replace(
                r'^( +)devices = \[torch\.device\("cpu"\)\]\n.*\n.*\n',
                r'\1with xdevice.using("torch"):\n\1    devices = list(map(xdevice.native, xdevice.devices()))\n',
                times=None,
            )
            tests.prepend("import xdevice\n")
