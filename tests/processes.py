"""Fixtures that run code in processes of their own."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent


class Forks:
    """A process that has imported modules, and runs each program in a fork of itself.

    ``start`` are Python's arguments before those of `tests/forks.py`.
    """

    def __init__(self, modules, start, folders, costs):
        command = [sys.executable, *start, HERE / "forks.py", *modules]
        self._environment = without_ours()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        self._folders = folders
        self._costs = costs

    def run(self, arguments, environment, folder=None, stdin="", forgotten=()):
        """What is returned is as of `subprocess.run`. A variable that is None is removed.

        ``forgotten`` are modules that the program imports once more.
        """
        own = self._folders.mktemp("program")
        files = [own / name for name in ("in", "out", "err")]
        for file, text in zip(files, (stdin, "", ""), strict=True):
            file.write_text(text, encoding="utf-8")
        request = {
            "arguments": [str(word) for word in arguments],
            "environment": environment,
            "folder": str(folder or os.getcwd()),
            "files": [str(file) for file in files],
            "forgotten": forgotten,
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"it has not started: {self._process.args}"
        status, seconds = answer.split()
        self._costs.of_forks += float(seconds)
        texts = [file.read_text("utf-8", "replace") for file in files[1:]]
        return subprocess.CompletedProcess(arguments, int(status), *texts)

    def become(self, arguments, environment, **options):
        """Run Python with these arguments, and exactly this environment."""
        others = dict.fromkeys(self._environment.keys() - environment.keys())
        return self.run(arguments, {**others, **environment}, **options)

    def close(self):
        with self._process:  # which closes its input, and waits for it
            pass


@pytest.fixture(scope="session")
def forks(tmp_path_factory, pytestconfig):
    """A function that returns the process for programs that need these modules."""
    costs = pytestconfig.pluginmanager.get_plugin("costs")

    made = {}

    def started(modules, start=()):
        if (modules, start) not in made:
            made[modules, start] = Forks(modules, start, tmp_path_factory, costs)
        return made[modules, start]

    yield started
    for each in made.values():
        each.close()


@pytest.fixture(scope="session")
def in_a_fork(forks, tmp_path_factory):
    """Run programs of a framework, each in a fork of one process that has imported it."""

    def run(framework, code, *start, **environment):
        if not start and framework in ("paddle", "mxnet"):
            # they ask for virtual GPUs, or for xdevice, before they are imported
            framework = "numpy"
        program = tmp_path_factory.mktemp("program") / "program.py"
        program.write_text(code, encoding="utf-8")
        return forks((framework,), start).run([program], environment, program.parent)

    return run


# What takes long to import: of Python, of others that are installed, and ours for commands.
MODULES = (
    *("argparse", "asyncio", "concurrent.futures.thread", "importlib.metadata", "inspect", "json"),
    *("subprocess", "tempfile", "zipfile", "psutil", "rich.live"),
    *(f"xdevice.tools.cli.{name}" for name in ("doctor", "emulate", "info", "virtual", "watch")),
)
WITH_RICH = tuple(f"xdevice.tools.cli.{name}" for name in ("bench", "chapter", "launch", "run"))


@pytest.fixture(scope="session")
def python(forks, new_python):
    """Run Python, as by `subprocess.run`, in a fork of a process that has imported xdevice alone.

    Its environment is ``env``, or this one without what is said to xdevice, and the ``variables``.
    """
    if not hasattr(os, "fork"):
        return new_python
    modules = MODULES + WITH_RICH if find_spec("rich") else MODULES
    modules = tuple(name for name in modules if find_spec(name.partition(".")[0]))

    def run(*arguments, env=None, cwd=None, stdin="", **variables):
        env = {**(without_ours() if env is None else env), **variables}
        # which reads the environment at its import
        options = {"folder": cwd, "stdin": stdin, "forgotten": ["xdevice"]}
        return forks(modules).become(arguments, env, **options)

    return run


@pytest.fixture(scope="session")
def new_python():
    """The same in a new process, for what happens as Python starts, or is imported first."""

    def run(*arguments, env=None, cwd=None, stdin="", umask=-1, **variables):
        return subprocess.run(
            [sys.executable, *arguments],
            env={**(without_ours() if env is None else env), **variables},
            cwd=cwd,
            input=stdin,
            umask=umask,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    return run


def without_ours():
    """The environment without what is said to xdevice."""
    return {name: text for name, text in os.environ.items() if not name.startswith("XDEVICE")}


@pytest.fixture(scope="session")
def with_ctrl_c():
    """The words before a command that make it receive Ctrl-C and SIGHUP.

    Tests that run in the background ignore these signals, and their child processes would, too.
    """
    code = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
    return [sys.executable, "-c", code]


@pytest.fixture
def toy_path(tmp_path):
    """A folder with a toy framework and its adapter, registered by an entry point."""
    return shutil.copytree(HERE / "toy", tmp_path, dirs_exist_ok=True)


@pytest.fixture
def run(toy_path, python):
    """A function that runs code where xdevice is imported, and which can use the toy framework."""
    return with_toy(python, toy_path)


@pytest.fixture
def run_alone(toy_path, new_python):
    """The same in a new process, for what depends on which of our modules is imported first."""
    return with_toy(new_python, toy_path)


def with_toy(python, folder):
    def run(code, **env):
        code = "import xdevice\n" + textwrap.dedent(code)
        process = python("-c", code, env={**found_in(folder), **env}, cwd=folder)
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()

    return run


@pytest.fixture(scope="session")
def with_path():
    """A function that returns the environment in which Python finds modules in folders, too."""
    return found_in


def found_in(*folders):
    path = [*map(str, folders), *filter(None, sys.path)]
    return {**without_ours(), "PYTHONPATH": os.pathsep.join(path)}
