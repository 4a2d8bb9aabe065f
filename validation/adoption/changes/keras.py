"""Keras: multi_device becomes the plugin's mark, and so does what is skipped under NumPy."""


def change(tree):
    conftest = tree.file("conftest.py")
    conftest.replace("^import pytest  # noqa.*", r"\g<0>\nimport xdevice  # noqa: E402")
    # The plugin registers its own mark of this name.
    conftest.replace(
        r'^    config\.addinivalue_line\(\n +"markers",\n +"multi_device: .*\n    \)\n', ""
    )
    conftest.replace(r"^def pytest_configure\(config\):\n", r"\g<0>    xdevice.use(backend())\n\n")
    conftest.replace_lines("^    has_multiple_devices = False", "^$")
    conftest.replace(
        r'^    if backend\(\) == "jax":\n        import jax\n\n        has_multiple_devices = .*\n\n',
        "",
    )
    conftest.replace_lines(r"^    requires_multiple_devices = \($", r"^    \)$")
    conftest.replace_lines("if requires_multiple_devices and", "item.add_marker")
