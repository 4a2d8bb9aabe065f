"""The reports of programs whose copies are told as an adapter tells them: no framework is needed."""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from xdevice.contract import Copy
from xdevice.device import Device
from xdevice.framework.adapters import find
from xdevice.hardware.bus import DEFAULT
from xdevice.transfers import watching
from xdevice.transfers.recorder import Recorder
from xdevice.transfers.report import Report
from xdevice.virtual.request import ENV

HOST, GPU = Device("cpu", 0), Device("gpu", 0)

# It is no line of the user's: its name is that of generated code.
FRAMEWORK = compile(
    """
from itertools import count
from threading import Thread

marks = count(1)


class Tensor:
    def __init__(self, nbytes=1_000_000, pinned=False, mark=None):
        self.nbytes, self.pinned, self.mark = nbytes, pinned, next(marks) if mark is None else mark

    def to(self, device, non_blocking=False):
        see(Copy("copy", "to", self.nbytes, HOST, GPU, non_blocking, self.pinned, self.mark))
        return self

    def cpu(self):
        see(Copy("copy", "cpu", self.nbytes, GPU, HOST))

    def __rmul__(self, number):
        return self

    def to_other(self):
        see(Copy("copy", "to_other", self.nbytes, GPU, OTHER))

    def repeat(self, counts, size=None):
        if size is None:
            self.does("size")

    def does(self, kind, back=False, nbytes=4):
        see(Copy(kind, kind, nbytes, *((HOST, GPU) if back else (GPU, HOST))))
        return 1

    def item(self):
        return self.does("number")

    def fit(self, steps):
        for _ in range(steps):
            self.item()
            step()

    def predict(self, steps):
        thread = Thread(target=self.fit, args=[steps])
        thread.start()
        thread.join()

    def to_fill(self, n):
        return [Tensor() for _ in range(n)]


def tensor(numbers):
    return Tensor(len(numbers)).to("gpu")


def zeros(n, device=None):
    return Tensor(n)


def step():
    stepped(Tensor)
""",
    "<framework>",
    "exec",
)


@pytest.fixture(autouse=True)
def programs_choose_their_own(monkeypatch):
    """Programs that tests start ask for virtual GPUs themselves, whatever this run has."""
    monkeypatch.delenv(ENV, raising=False)


@pytest.fixture
def reported(tmp_path, monkeypatch):
    """The report of a program's copies."""

    def run(program, bus=DEFAULT):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))  # the lines of a file are read once
        monkeypatch.chdir(folder)
        file = folder / "main.py"
        file.write_text(textwrap.dedent(program), encoding="utf-8")
        recorder = Recorder()
        teller = watching.CopyNotifier(find("numpy"))
        framework = {
            "see": teller.see,
            "stepped": teller.stepped,
            "Copy": Copy,
            "HOST": HOST,
            "GPU": GPU,
            "OTHER": Device("gpu", 1),
        }
        exec(FRAMEWORK, framework)
        watching.open_for(recorder)
        try:
            exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), dict(framework))
        finally:
            watching.close_for(recorder)
        return Report(recorder, bus)

    return run


@pytest.fixture
def check_page(tmp_path, plug_in):
    """The tests that the page on transfers shows pass under the framework."""

    def check(name):
        page = Path(__file__).parents[2] / "docs" / "test" / "copies.md"
        (text,) = [
            part
            for part in page.read_text(encoding="utf-8").split("```")
            if "# test_training.py" in part
        ]
        (tmp_path / "test_training.py").write_text(text.removeprefix("python\n"), encoding="utf-8")
        gpus = f"--xdevice-backend={name}", "--xdevice-virtual-gpus=2"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *gpus]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=280, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        assert "3 passed" in done.stdout, done.stdout[-6000:] + done.stderr[-3000:]

    return check


@pytest.fixture
def advised(plug_in):
    """The planted mistakes of mistakes/NAME.txt, each with what is found in its two versions, all by one process."""

    def run(name):
        script = Path(__file__).parent / "mistakes" / "programs.py"
        env = {**os.environ, "XDEVICE_VIRTUAL_GPUS": "2:stand-in", "XDEVICE_BACKEND": name}
        done = subprocess.run(
            [sys.executable, script, name],
            capture_output=True,
            text=True,
            timeout=280,
            env=env,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        mistakes = runpy.run_path(str(script))["mistakes"](script.with_name(f"{name}.txt"))
        return list(zip(mistakes, json.loads(done.stdout.splitlines()[-1]), strict=True))

    return run


@pytest.fixture
def check_advice(advised):
    """Under the framework, advice is right: it is given at the line, and whoever follows it has none left."""

    def check(name):
        of_this_framework = advised(name)
        wrong = {}
        for mistake, found in of_this_framework:
            rules = [rule for line, rule, words in found.get("before", ()) if rule]
            at_line = [
                rule
                for line, rule, words in found.get("before", ())
                if line in mistake.lines and mistake.words in words
            ]
            is_found = mistake.rule in at_line if mistake.rule else not rules
            left = [rule for _, rule, _ in found.get("after", ()) if rule]
            if "error" in found or not is_found or left:
                wrong[f"{mistake.title}\n{mistake.before}"] = found
        assert not wrong, json.dumps(wrong, indent=1, ensure_ascii=False).replace("\\n", "\n")
        assert sum(bool(mistake.rule) for mistake, _ in of_this_framework) >= 20

    return check


@pytest.fixture
def copies_on(with_virtual_gpus):
    """Run test_copies.py of a framework on two virtual GPUs that do not stand in."""

    def run(name, **env):
        folder = Path(__file__).parents[1] / "virtual" / name / "stand_in"
        options = f"--xdevice-backend={name}", "--xdevice-virtual-gpus=2", "--confcutdir=."
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                *options,
                "test_copies.py",
            ],
            capture_output=True,
            text=True,
            timeout=280,
            env={**os.environ, **env},
            cwd=folder,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        assert "passed" in done.stdout, done.stdout[-6000:] + done.stderr[-3000:]

    return run
