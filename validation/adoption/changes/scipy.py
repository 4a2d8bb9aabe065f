"""SciPy: the namespaces, their devices, and the marks that skip them come from xdevice's plugin.

What is not about devices stays in its ``xp``: functions wrapped in ``jax.jit``, and comparing namespaces.
"""

SETTINGS = '''
if SCIPY_ARRAY_API:
    with suppress(ImportError):
        import array_api_strict
        array_api_strict.set_array_api_strict_flags(api_version='2024.12')
    with suppress(ImportError):
        import torch
        torch.set_default_dtype(
            getattr(torch, os.getenv('SCIPY_DEFAULT_DTYPE', default='float64')))
    with suppress(ImportError):
        import jax
        jax.config.update("jax_enable_x64", True)


def pytest_collection_modifyitems(items):
    """Let `-m array_api_backends` select the tests that use the `xp` fixture."""
    for item in items:
        if "xp" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.array_api_backends)


@pytest.fixture
def xp(request, device_scope):
    """Run the test that uses this fixture on each framework and device."""
    xp = array_namespace(xdevice.ones(1))
    if not SCIPY_ARRAY_API:
        yield xp
        return
    with patch_lazy_xp_functions(request=request, xp=xp), default_xp(xp):
        yield xp


'''


def change(tree):
    change_conftest(tree.file("scipy/conftest.py"))
    for file in tree.files("scipy/**/*.py"):
        if "_xp_backends" in file.text:
            file.replace(
                r"pytest\.mark\.(skip|xfail)_xp_backends", r"pytest.mark.\1_backends", times=None
            )
    tree.file("pytest.ini").append(
        """
        [pytest]
        xdevice_lazy_backends = jax.numpy dask.array
        xdevice_other_backends = dask.array
        """
    )
    change_scipy_device(tree)


def change_scipy_device(tree):
    """Two tests ask whether they run on a GPU."""
    tree.file("scipy/_lib/_array_api_override.py").replace("^SCIPY_DEVICE = .*\n", "")
    library = tree.file("scipy/_lib/_array_api.py")
    library.replace(
        "array_namespace, SCIPY_ARRAY_API, SCIPY_DEVICE$", "array_namespace, SCIPY_ARRAY_API"
    )
    library.replace("'SCIPY_ARRAY_API', 'SCIPY_DEVICE', ", "'SCIPY_ARRAY_API', ")
    for path in ("test_signaltools", "test_windows"):
        tests = tree.file(f"scipy/signal/tests/{path}.py")
        tests.replace("import pytest$", r"\g<0>\nimport xdevice")
        tests.replace(", SCIPY_DEVICE, ", ", ")
        tests.replace("SCIPY_DEVICE != ", "xdevice.device_of(xp.ones(1)).kind != ")


def change_conftest(conftest):
    conftest.replace_lines(
        "^# Array API backend handling", r"^xp_skip_eager_only_backends = ", SETTINGS
    )
    # The namespaces one by one, their devices, and which of them were asked for.
    conftest.replace(r"^if SCIPY_ARRAY_API:\n    # fill(?:.*\n)+?(?=@pytest\.fixture\(params=)", "")
    conftest.replace(r"^@pytest\.fixture\(params=(?:.*\n)+?(?=skip_xp_invalid_arg = )", "")
    conftest.remove("_backends_kwargs_from_request", "skip_or_xfail_xp_backends")
    # The plugin registers its marks.
    conftest.replace(
        r'^    config\.addinivalue_line\("markers",\n +\("(?:skip|xfail)_xp_backends\((?:.*\n){3}',
        "",
        times=2,
    )
    conftest.replace_definition(
        "devices",
        '''
        @pytest.fixture
        def devices(xp):
            """Fixture that returns a list of all devices for the backend, plus None."""
            if is_jax(xp):
                # The device of an array is not known inside jax.jit.
                pytest.xfail(reason="jax-ml/jax#26000")
            return [*map(xdevice.native, xdevice.devices()), None]
        ''',
    )
    conftest.replace(
        r"    SCIPY_ARRAY_API, SCIPY_DEVICE, array_namespace, default_xp,\n.*",
        "    SCIPY_ARRAY_API, array_namespace, default_xp, is_jax,",
    )
    conftest.replace("^from scipy._lib import _pep440\n", "")
    conftest.replace("^from typing import Literal\n", "")
    conftest.replace("^import json\n", "")
    conftest.replace("^import pytest$", "import pytest\nimport xdevice")
    conftest.replace("import contextmanager$", "import contextmanager, suppress")
