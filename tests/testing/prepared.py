"""What each run of pytest imports: `tests/forks.py` imports this module, and forks the runs.

They are imported by a first run of pytest, since it changes the assertions of what it imports.
"""

import contextlib
import gc
import io
import tempfile
from pathlib import Path

import numpy  # noqa: F401
import pytest

from xdevice.framework import registry

with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
    test = Path(folder, "test_first.py")
    test.write_text("def test_it(monkeypatch): assert monkeypatch\n", encoding="utf-8")
    options = "-p no:cacheprovider -p no:hypothesispytest -p no:xdist --rootdir"
    status = pytest.main([*options.split(), folder, str(test)])
assert status == pytest.ExitCode.OK
registry._entry_points.clear()  # the runs have frameworks of their own
gc.freeze()  # the runs collect what is theirs
