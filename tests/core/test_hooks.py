"""The hooks of the lower layers are installed together, when one is needed, and the import hook changes one module."""

import sys

import pytest

from xdevice.kit.import_hook import after_import

ALL = "devices fallback memory scopes timing virtual"


def test_no_import_installs_a_hook(run):
    out = run(f"""
        import importlib, sys
        import xdevice.framework.at_import, xdevice.framework.watched
        finders = list(sys.meta_path)
        for name in {ALL!r}.split():
            importlib.import_module(f"xdevice.hardware.{{name}}")
        import xdevice.hooks, xdevice.tensors.placement
        print(xdevice.hooks._hooks is None, sys.meta_path == finders)
    """)
    assert out == "True True"


@pytest.mark.parametrize("first", [
    "with xdevice.Device('cpu'): pass",
    "assert xdevice.Device('cpu') != object()",
    "xdevice.backend().framework",
    "xdevice.backend().hardware",
])  # fmt: skip
def test_the_first_use_installs_all_hooks(run, first):
    out = run(
        f"""
        import xdevice, xdevice.hooks
        before = xdevice.hooks._hooks
        {first}
        print(before, xdevice.hooks._hooks is not None, "xdevice.hardware.scopes" in __import__("sys").modules)
    """,
        XDEVICE_BACKEND="toy",
    )
    assert out == "None True True"


@pytest.mark.parametrize("imported", [False, True])
def test_an_imported_module_is_changed_once(run, tmp_path, imported):
    (tmp_path / "theirs.py").write_text("VALUE = 1\nLOADER = __spec__.loader\n")
    (tmp_path / "other.py").write_text("")
    out = run(f"""
        from xdevice.kit.import_hook import after_import
        if {imported}:
            import theirs
        after_import("theirs", lambda module: setattr(module, "VALUE", module.VALUE + 1))
        import other, theirs
        print(theirs.VALUE, theirs.__spec__.loader is theirs.__loader__ is theirs.LOADER)
    """)
    assert out == "2 True"


def test_a_module_that_does_not_exist_is_not_changed(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    after_import("xdevice_nowhere", lambda module: pytest.fail("imported"))
    with pytest.raises(ModuleNotFoundError):
        import xdevice_nowhere  # noqa: F401
