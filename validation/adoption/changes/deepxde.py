"""DeepXDE: the backends' own ways to choose a GPU and to read a tensor become xdevice's."""

IMPORTS = {
    "pytorch": "torch",
    "paddle": "paddle",
    "tensorflow": "tensorflow as tf",
    "tensorflow_compat_v1": "tensorflow.compat.v1 as tf",
}


def change(tree):
    tree.file("pyproject.toml").append(
        """

        [tool.pytest.ini_options]
        usefixtures = ["device_scope"]
        """
    )
    loading = tree.file("deepxde/backend/__init__.py")
    loading.replace("^import sys$", "import sys\n\nimport xdevice")
    loading.replace(
        r"^def load_backend\(mod_name\):\n",
        r'\g<0>    xdevice.use({"pytorch": "torch", "tensorflow.compat.v1": "tensorflow"}'
        ".get(mod_name, mod_name))\n",
    )

    torch = tree.file("deepxde/backend/pytorch/tensor.py")
    torch.replace_lines(
        "^# To write device-agnostic",
        r"^        torch.set_default_device\(fallback_device\)$",
        """
        # New tensors are on a GPU, if there is one, as under TensorFlow.
        torch.set_default_device(xdevice.native(xdevice.try_gpu()))
        """,
    )
    paddle = tree.file("deepxde/backend/paddle/tensor.py")
    paddle.replace(
        r'^if paddle\.device\.is_compiled_with_cuda\(\):\n    paddle\.device\.set_device\("gpu"\)$',
        'if xdevice.count():\n    paddle.device.set_device("gpu")',
    )
    for name, imported in IMPORTS.items():
        tensor = tree.file(f"deepxde/backend/{name}/tensor.py")
        tensor.replace_definition(
            "is_gpu_available",
            """
            def is_gpu_available():
                return xdevice.count() > 0
            """,
        )
        tensor.replace(f"^import {imported}$", r"\g<0>\nimport xdevice")
        if name in ("pytorch", "paddle"):
            tensor.replace(
                r"return input_tensor\.detach\(\)\.cpu\(\)\.numpy\(\)",
                "return xdevice.to_numpy(input_tensor)",
            )
