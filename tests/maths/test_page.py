"""The page on writing ``maths``: its example is complete, and keeps the standard."""

import re
import sys
from pathlib import Path
from types import ModuleType

import array_api_strict
import numpy as np
import pytest

from xdevice.testing.contract.maths import CALLS, arrays_of, flat

PAGE = (Path(__file__).parents[2] / "docs" / "project" / "adapters.md").read_text(encoding="utf-8")


@pytest.fixture
def example(monkeypatch):
    """The namespace of the page's example, with what the core adds to one."""
    text = re.search(r"^```python\n# maths\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
    module = ModuleType("maths_of_the_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(text, "maths.py", "exec"), vars(module))
    core = {
        name: np.dtype(name) for name in ("bool", "int8", "int32", "int64", "float32", "float64")
    }
    return ModuleType("namespace"), module.namespace() | core | {"asarray": np.asarray}


def test_its_functions_are_those_of_the_standard(example):
    xp, functions = example
    vars(xp).update(functions)
    compared = []
    for name, call in CALLS.items():
        try:
            found = flat(call(xp, arrays_of(xp)))
        except (AttributeError, KeyError):
            continue  # made of an operation that the example leaves out
        expected = flat(call(array_api_strict, arrays_of(array_api_strict)))
        for ours, theirs in zip(found, expected, strict=True):
            if not hasattr(theirs, "dtype"):
                assert ours == theirs
                continue
            np.testing.assert_allclose(ours, np.asarray(theirs._array), rtol=1e-5, err_msg=name)
        compared.append(name)
    assert {
        "sum",
        "var",
        "clip",
        "vecdot",
        "matmul",
        "where",
        "std",
        "concat",
        "add",
        "result_type",
    } <= set(compared)
