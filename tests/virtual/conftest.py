"""Virtual GPUs: all of these tests need two, as ``pytest --xdevice-virtual-gpus=2 tests/virtual`` gives them.

The tests in folders ``stand_in`` need GPUs that stand in for real ones, which a process has from its
start. One child process runs all of a framework's; each is reported by itself.

Other programs run as users run them, each in a process of its own.
"""

import ast
import os
import subprocess
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

import xdevice
from xdevice.testing.frameworks import backends_of
from xdevice.testing.items import backend_of
from xdevice.virtual import plugins
from xdevice.virtual.request import ENV

HERE = Path(__file__).parent
child = pytest.StashKey[tuple[list[ElementTree.Element], str]]()


def pytest_ignore_collect(collection_path, config):
    is_together = collection_path.name == "together"  # several frameworks in one process
    if os.environ.get(ENV, "0") == "0" or (is_together and len(backends_of(config)) == 1):
        return True
    return None  # other plugins decide


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path, parent):
    if module_path.parent.name == "stand_in" and "stand-in" not in os.environ.get(ENV, ""):
        return RunByChild.from_parent(parent, path=module_path)
    return None  # pytest imports it


class RunByChild(pytest.File):
    """A file of tests, which a child process imports."""

    def collect(self):
        for node in ast.parse(self.path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                test = TestOfChild.from_parent(self, name=node.name)
                if any("mark.weekly" in ast.unparse(mark) for mark in node.decorator_list):
                    test.add_marker(pytest.mark.weekly)
                yield test


class TestOfChild(pytest.Item):
    """A test that a child process has run, with all its parameters."""

    def setup(self):
        virtual = xdevice.backend(self.path.parents[1].name).load_unprepared("virtual")
        recipe = virtual.recipe() if virtual.has("recipe") else None
        if recipe and not plugins.compiler() and not plugins.find(recipe):
            pytest.skip(f"needs a plug-in, and so a C++ compiler: {plugins.INSTALL}")
        if child not in self.session.stash:
            self.session.stash[child] = run_by_child(self.session)

    def runtest(self):
        cases, output = self.session.stash[child]
        own = [case for case in cases if case_id(case) == self.nodeid]
        assert own, f"the child process has not run it: {output}"
        wrong = [found.text for case in own for found in case if found.tag in ("failure", "error")]
        assert not wrong, "\n".join(wrong)
        if all(case.find("skipped") is not None for case in own):
            pytest.skip(own[0].find("skipped").get("message"))

    def repr_failure(self, excinfo):
        return str(excinfo.value)


def run_by_child(session):
    """The cases that a child process reports, and what it prints: a fork, if their framework is imported first."""
    tests = [item for item in session.items if isinstance(item, TestOfChild)]
    frameworks = {item.path.parents[1].name for item in tests}
    processes = session.config.pluginmanager.get_plugin("processes")
    imported = tuple(sorted(frameworks.difference(processes.IMPORTED_LATE))) or ("numpy",)
    options = ["--weekly"] if session.config.getoption("--weekly") else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        arguments = [
            *("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"),
            *(f"--xdevice-backend={','.join(frameworks)}", "--xdevice-virtual-gpus=2:stand-in"),
            *(f"{item.path}::{item.name}" for item in tests),
            *options,
        ]
        environment = {name: value for name, value in os.environ.items() if name != ENV}
        done = processes.forks_of(session.config, imported).become(
            arguments, environment, folder=folder, seconds=600
        )
        cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    return cases, f"exit status {done.returncode}\n" + done.stdout[-6000:] + done.stderr[-3000:]


def case_id(case):
    """The id of the test, without its parameters."""
    return f"{case.get('classname').replace('.', '/')}.py::{case.get('name').partition('[')[0]}"


EMULATE = "-m", "xdevice", "emulate", "--gpus", "2"
SAID = "2 virtual GPUs stand in for CUDA's; they compute on the CPU"


@pytest.fixture
def program(tmp_path, plug_in, request, in_a_fork):
    """Run a program's text with two GPUs that stand in, or on the CPU; the lines that it prints come back.

    A program that is started in the usual way shares its process's start with the others, if it may.
    """
    framework = backend_of(request.node) or request.path.relative_to(HERE).parts[0]

    def run(text, *, gpus=True, words=(), shares=True, **env):
        if shares and gpus and not words and not env:
            done = in_a_fork(framework, textwrap.dedent(text), *EMULATE)
            assert done.returncode == 0, done.stderr[-5000:]
            return done.stdout.splitlines()
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        clean = {
            name: value
            for name, value in os.environ.items()
            if name != ENV and not name.endswith("_WARNED")
        }
        start = [*EMULATE, *words] if gpus else []
        done = subprocess.run(
            [sys.executable, *start, str(path)],
            capture_output=True,
            text=True,
            timeout=150,
            env={**clean, **env},
        )
        assert done.returncode == 0, done.stderr[-5000:]
        assert (SAID in done.stderr) == gpus, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture
def computed_on_cpu(capsys):
    """Run a program's text in this process, whose framework is imported, on the CPU; the lines that it prints."""

    def run(text):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are errors of tests, and not of programs
            exec(textwrap.dedent(text), {"__name__": "__main__"})
        return capsys.readouterr().out.splitlines()

    return run


# Keras chooses kernels by the list of GPUs: each of these has one of its own where there is cuDNN.
KERAS = """
    import keras, numpy as np
    from keras import layers
    keras.utils.set_random_seed(0)
    words = keras.Input((6,), dtype="int32")
    x = layers.Embedding(9, 8)(words)
    x = layers.GRU(8, return_sequences=True)(layers.LSTM(8, return_sequences=True)(x))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.BatchNormalization()(layers.Conv1D(8, 3, padding="same", activation="relu")(x))
    net = keras.Model(words, layers.Dense(3)(layers.Flatten()(layers.Dropout(0.0)(x))))
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rng = np.random.default_rng(0)
    for weights in net.trainable_weights:  # a GPU draws other ones, where Keras draws them there
        weights.assign(rng.normal(0, 0.3, weights.shape))
    history = net.fit(rng.integers(0, 9, (16, 6)), rng.integers(0, 3, 16), 8, 2, verbose=0, shuffle=False)
    net.save_weights("net.weights.h5")
    net.load_weights("net.weights.h5")
    print(*(f"{loss:.5f}" for loss in history.history["loss"]))
"""


@pytest.fixture
def keras_losses(program):
    """The losses of a network with an embedding, an LSTM, a GRU, attention and a convolution: GPU's, and CPU's."""

    def both(backend, then=""):
        text = KERAS + textwrap.indent(textwrap.dedent(then), "    ")
        with_gpus = program(text, KERAS_BACKEND=backend)
        (alone,) = program(KERAS, gpus=False, KERAS_BACKEND=backend)
        return (
            [float(x) for x in with_gpus[0].split()],
            [float(x) for x in alone.split()],
            with_gpus[1:],
        )

    return both
