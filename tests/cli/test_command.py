"""The command itself: both ways to start it, its help, its errors, and tox's environments."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import xdevice

ONE = xdevice.available()[-1] if xdevice.available() else None


def run(*arguments, start=(sys.executable, "-m", "xdevice"), **options):
    return subprocess.run(
        [*start, *arguments], capture_output=True, text=True, timeout=300, check=False, **options
    )


def test_command_and_module_are_one():
    script = Path(sys.executable).with_name("xdevice")
    assert (
        run("--version", start=[script]).stdout
        == run("--version").stdout
        == f"xdevice {xdevice.__version__}\n"
    )


def test_the_command_alone_shows_its_help():
    alone = run()
    assert alone.returncode == 0
    assert alone.stderr == ""
    assert alone.stdout == run("--help").stdout


ROOT = Path(__file__).parents[2]


PROMISE = ["tests/contract", "-k", "Contract and always_there"]


@pytest.mark.skipif(not ONE, reason="no framework is installed")
@pytest.mark.parametrize(
    ("start", "says"),
    [
        (
            ["-c", "import xdevice; print(xdevice.__file__, xdevice.device_of(xdevice.ones(2)))"],
            ROOT,
        ),
        pytest.param(
            ["-m", "pytest", "-q", "-p", "no:cacheprovider", *PROMISE],
            "1 pass",
            marks=pytest.mark.weekly,
        ),
    ],
    ids=["REPL", "pytest"],
)
def test_a_clone_finds_its_adapters(start, says):
    env = {**os.environ, "XDEVICE_BACKEND": ONE, "PYTEST_ADDOPTS": f"--xdevice-backend={ONE}"}
    done = run(*start, start=[sys.executable], cwd=ROOT, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(says) in done.stdout


def test_help_and_version_load_little():
    code = "import sys; from xdevice.tools.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('rich', 'psutil', 'numpy', 'torch', 'optree') if m in sys.modules])"
    assert run("-c", code, start=[sys.executable]).stdout.splitlines()[-1] == "[]"


def test_an_emulation_needs_neither_rich_nor_psutil():
    code = "import sys; sys.modules['rich'] = sys.modules['psutil'] = None; from xdevice.tools.cli import main; "
    code += "main(['emulate', '-c', 'print(1)'])"
    done = run("-c", code, start=[sys.executable])
    assert done.stdout == "1\n", done.stderr


@pytest.mark.parametrize("package", ["rich", pytest.param("psutil", marks=pytest.mark.weekly)])
def test_missing_packages_are_named(package):
    code = f"import sys; sys.modules[{package!r}] = None; from xdevice.tools.cli import main; "
    code += "sys.exit(main(['run', '-c', '1']))"
    done = run("-c", code, start=[sys.executable])
    assert done.returncode == 2
    assert done.stderr == f"xdevice: error: this command needs {package}; pip install rich psutil\n"


@pytest.mark.parametrize("command", ["doctor", pytest.param("info", marks=pytest.mark.weekly)])
def test_what_a_machine_has_is_shown_without_the_extra(command):
    code = "import sys; sys.modules['rich'] = sys.modules['psutil'] = None; from xdevice.tools.cli import main; "
    code += f"sys.exit(main([{command!r}, '--backend', 'numpy']))"
    done = run("-c", code, start=[sys.executable])
    assert done.returncode == 0, done.stderr
    assert "machine" in done.stdout
    assert "numpy" in done.stdout


@pytest.mark.weekly
def test_a_closed_pipe_is_no_error():
    started = f"{sys.executable} -m xdevice info --json --backend {ONE} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", started], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.weekly
def test_a_terminal_without_unicode(tmp_path):
    (tmp_path / "script.py").write_text("print('done')")
    done = run(
        "run",
        "--backend",
        ONE,
        "script.py",
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0
    assert "done" in done.stdout
    assert done.stdout.isascii()


TOX = """
[tox]
env_list = lint, {name}
no_package = true
[testenv]
allowlist_externals = true
"""
needs_tox = pytest.mark.skipif(
    find_spec("tox") is None, reason="tox is not installed here, so there is none to call"
)


@pytest.fixture
def project(tmp_path):
    """A folder with a tox.ini of its own, and a script that says which Python runs it."""
    (tmp_path / "tox.ini").write_text(TOX.format(name=ONE))
    says = (
        "import os, sys; print(os.environ['XDEVICE_BACKEND'], sys.prefix, sys.argv[1:], sep='\\n')"
    )
    (tmp_path / "script.py").write_text(says)
    return tmp_path


@pytest.fixture
def in_tox(project, python):
    def run(*arguments, own=()):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TOX", "XDEVICE"))}
        words = ["run", "--env", "tox", *arguments, "script.py", *own]
        return python("-m", "xdevice", *words, cwd=project, env=env)

    return run


@pytest.mark.weekly
@needs_tox
def test_each_runs_in_its_tox_environment(project, in_tox):
    done = in_tox("--json", own=["--flag"])
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["runs"]
    assert row["stdout"].splitlines() == [ONE, str(project / ".tox" / ONE), "['--flag']"]


@pytest.mark.weekly
@needs_tox
def test_a_failing_environment_is_a_row(project, in_tox):
    with open(project / "tox.ini", "a") as config:
        config.write("deps = {toxinidir}/no_such_file.whl\n")
    done = in_tox()
    assert done.returncode == 1
    assert f"✗ {ONE}" in done.stdout
    assert "no_such_file.whl" in done.stdout


@needs_tox
def test_no_environment_is_a_mistake(project, in_tox):
    (project / "tox.ini").write_text(TOX.format(name="style"))
    done = in_tox("--backend", "torch,jax,mxnet")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "xdevice: error: no tox environment 'torch' here; there are lint, "
    )


@pytest.mark.weekly
@needs_tox
def test_no_tox_folder_is_a_mistake(project, in_tox):
    (project / "tox.ini").unlink()
    done = in_tox()
    assert done.returncode == 2
    assert done.stderr.startswith(
        "xdevice: error: no tox environment here is named like a framework"
    )
