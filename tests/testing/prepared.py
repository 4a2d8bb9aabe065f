"""A process that has imported what each run of pytest imports: `tests/forks.py` forks the runs.

A first run of pytest imports it, since pytest changes the assertions of what it imports.
"""

import contextlib
import gc
import io
import os
import sys
import tempfile
from pathlib import Path

import numpy  # noqa: F401
import pytest

from xdevice.framework import adapters, registry


def run(environment, folder, path, arguments):
    """Run pytest with these variables, in this folder; never returns."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:] = path
    status = 3
    try:
        status = int(pytest.main(arguments))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # what this process has imported need not be tidied up


with tempfile.TemporaryDirectory() as first, contextlib.redirect_stdout(io.StringIO()):
    test = Path(first, "test_first.py")
    test.write_text("import xdevice.testing.contract\ndef test_it(): pass\n", encoding="utf-8")
    options = "-p no:cacheprovider -p no:hypothesispytest -p no:xdist --rootdir"
    assert pytest.main([*options.split(), first, str(test)]) == pytest.ExitCode.OK
# The runs register frameworks of their own.
registry._entry_points.clear()
adapters._backends.clear()
gc.freeze()  # the runs collect what is theirs
