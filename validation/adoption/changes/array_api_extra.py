"""array-api-extra: the GPU of PyTorch and of JAX, and the device that is not the default, come from xdevice.

The namespaces stay its own: it tests array-api-strict, dask, sparse and read-only NumPy as well.
"""

import re

META = r"""^ *@pytest\.mark\.(?:skip|xfail)_xp_backend\(\s*Backend\.TORCH, reason="[^"]*meta[^"]*"\s*\)\n"""


def change(tree):
    conftest = tree.file("tests/main/conftest.py")
    conftest.replace("^import pytest$", "import pytest\nimport xdevice")
    conftest.replace(
        "^from functools import partial, wraps$",
        r"from contextlib import contextmanager\n\g<0>",
    )
    conftest.remove("_setup_torch")
    conftest.replace_definition(
        "_setup_jax",
        """
        FRAMEWORKS = {
            Backend.TORCH: "torch",
            Backend.TORCH_GPU: "torch",
            Backend.JAX: "jax",
            Backend.JAX_GPU: "jax",
        }


        @contextmanager
        def _default_device(library: Backend) -> Generator[None]:
            with xdevice.using(FRAMEWORKS[library]):
                on_gpu = library in (Backend.TORCH_GPU, Backend.JAX_GPU)
                if on_gpu and not xdevice.num_gpus():
                    pytest.skip("no GPU available")
                with xdevice.gpu() if on_gpu else xdevice.cpu():
                    yield
        """,
    )
    conftest.replace_lines(
        r"if library\.like\(Backend\.JAX\):",
        r"_setup_torch\(library\)",
        """
        if library in FRAMEWORKS:
            with _default_device(library), patch_lazy_xp_functions(request, xp=xp):
                yield xp
            return
        """,
    )
    conftest.replace_lines(
        r"    _setup_jax\(request\.param\)",
        "patch_lazy_xp_functions",
        "with _default_device(request.param), patch_lazy_xp_functions(request, xp=xp):",
    )
    conftest.replace_lines(
        r"    _setup_torch\(request\.param\)",
        "return xp",
        """
        with _default_device(request.param):
            yield xp
        """,
    )
    conftest.replace(
        r"^def torch\((\n.*)\n\) -> ArrayNamespace:",
        r"def torch(\1\n) -> Generator[ArrayNamespace]:",
    )
    conftest.replace_lines(
        r"    if library == Backend\.TORCH:",
        r"return get_device",
        """
        default = get_device(xp.empty(0))
        if library not in FRAMEWORKS:
            return default
        others = [xdevice.native(other) for other in xdevice.devices() if other != default]
        return others[-1] if others else default
        """,
    )
    conftest.append('import jax\n\njax.config.update("jax_enable_x64", True)')
    # These skip what the device "meta" cannot compute.
    for tests in tree.files("tests/main/test_*.py"):
        if re.search(META, tests.text, re.MULTILINE):
            tests.replace(META, "", times=None)
