"""mypy, strict, over the package as it is installed; mypy and pyright over what users write.

An editable install does not show them `xdevice.backends` and the other folders of the repository,
so the package is laid out once more as the wheel lays it out.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(
            ROOT / "xdevice", tree / "xdevice", ignore=shutil.ignore_patterns("__pycache__")
        )
        for part in ("backends", "virtual", "testing", "tools"):
            shutil.copytree(
                ROOT / part,
                tree / "xdevice" / part,
                ignore=shutil.ignore_patterns("__pycache__", "wheel"),
            )
        for name in ("contract.py", "public.py", "frameworks.py"):
            shutil.copy(ROOT / "tests" / "typing" / name, tree / name)
        for name in ("mypy.ini", "users.json"):
            shutil.copy(ROOT / "tests" / "typing" / name, tree / name)
        libraries = sorted((ROOT / "examples" / "libraries").glob("*.py"))
        for library in libraries:
            shutil.copy(library, tree / library.name)
        checks = [
            [
                "mypy",
                "--cache-dir",
                os.devnull,
                "xdevice",
                "contract.py",
                "public.py",
                "frameworks.py",
            ]
            + [library.name for library in libraries],
            ["pyright", "--pythonpath", sys.executable, "--project", "users.json"],
        ]
        return max(
            subprocess.run([sys.executable, "-m", *check], cwd=tree, check=False).returncode
            for check in checks
        )


if __name__ == "__main__":
    sys.exit(main())
