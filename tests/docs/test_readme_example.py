"""The first example of each README runs, and says what the README says that it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_ten_lines_run_and_print_what_is_promised(name, backend):
    text = (ROOT / name).read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    done = subprocess.run(
        [sys.executable, "-c", f"import xdevice; xdevice.use({backend!r})\n{example}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{backend} [Device('cpu:0')] cpu:0"
    assert "numpy [Device('cpu:0')] cpu:0" in text
