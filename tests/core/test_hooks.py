"""Upper layers are called when one is needed, and the import hook changes one module."""

import sys

import pytest

from xdevice.framework.import_hook import after_import

ALL = "devices fallback memory scopes timing virtual"


def test_no_import_installs_a_hook(run_alone):
    out = run_alone(f"""
        import importlib, sys
        import xdevice.framework.at_import, xdevice.framework.watched
        finders = list(sys.meta_path)
        for name in {ALL!r}.split():
            importlib.import_module(f"xdevice.hardware.{{name}}")
        import xdevice.tensors.placement
        from xdevice.framework.adapters import before_loading
        from xdevice.hardware.questions import after_synchronizing
        print(before_loading, after_synchronizing, sys.meta_path == finders)
    """)
    assert out == "[] [] True"


@pytest.mark.parametrize(("module", "first"), [
    ("scopes", "with xdevice.Device('cpu'): pass"),
    ("devices", "assert xdevice.Device('cpu') != object()"),
])  # fmt: skip
def test_the_first_use_imports_the_upper_layer(run_alone, module, first):
    out = run_alone(
        f"""
        import sys, xdevice
        before = "xdevice.hardware.{module}" in sys.modules
        {first}
        print(before, "xdevice.hardware.{module}" in sys.modules)
    """,
        XDEVICE_BACKEND="toy",
    )
    assert out == "False True"


@pytest.mark.parametrize("imported", [False, True])
def test_an_imported_module_is_changed_once(run, tmp_path, imported):
    (tmp_path / "theirs.py").write_text("VALUE = 1\nLOADER = __spec__.loader\n")
    (tmp_path / "other.py").write_text("")
    out = run(f"""
        from xdevice.framework.import_hook import after_import
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
