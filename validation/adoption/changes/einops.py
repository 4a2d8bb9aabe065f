"""einops: a test runs once for each framework and device, instead of in a loop over frameworks.

Its variable EINOPS_TEST_BACKENDS, and the script that sets it, become --xdevice-backend.
"""

LOOPS = (
    "collect_test_backends|is_backend_tested|imp_op_backends|sym_op_backends|_IMPERATIVE_BACKENDS"
)


def change(tree):
    kit = tree.file("einops/tests/__init__.py")
    kit.remove("ENVVAR_NAME", "unparse_backends")
    kit.replace("^import os\n", "")
    kit.replace("^from functools import lru_cache\n", "")
    kit.replace("^from einops import _backends", "import xdevice\nfrom einops import _backends")
    kit.replace_definition(
        "parse_backends_to_test",
        """
        def parse_backends_to_test() -> list[str]:
            return [xdevice.backend()]
        """,
    )
    tree.file("einops/tests/run_tests.py").delete()

    for path in ("test_ops", "test_packing", "test_einsum", "test_layers"):
        tests = tree.file(f"einops/tests/{path}.py")
        tests.add_fixture("device_scope", LOOPS)
    ops = tree.file("einops/tests/test_ops.py")
    ops.replace(r" in imp_op_backends:", " in collect_test_backends():", times=None)
    ops.replace(r" in sym_op_backends:", " in collect_test_backends(symbolic=True):", times=None)
    ops.remove("imp_op_backends", "sym_op_backends")

    # In the library: torch.from_numpy ignores the default device.
    tree.file("einops/_backends.py").replace(
        r"self\.torch\.from_numpy\(x\)", "self.torch.asarray(x)"
    )
