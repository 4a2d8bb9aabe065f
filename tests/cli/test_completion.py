"""What real shells make of TAB, with the line that docs/reference/cli.md gives for each."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
TYPED = {
    "xdevice ru": "xdevice run",
    "xdevice emulate --model rtx5": "xdevice emulate --model rtx5090",
    "xdevice run --backend torch,num": "xdevice run --backend torch,numpy",
    "xdevice chapter chap": "xdevice chapter chapter.md",
    "xdevice bench elem": "xdevice bench elementwise",
    "xdevice virtual build --to plug": "xdevice virtual build --to plugins/",
}


@pytest.fixture
def here(tmp_path):
    (tmp_path / "lessons.py").touch()
    (tmp_path / "chapter.md").touch()
    (tmp_path / "plugins").mkdir()
    return tmp_path


def line_for(shell):
    """What the documentation tells users of that shell to type."""
    found = re.search(rf"^\| {shell} \| `(.+?)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].replace("\\|", "|")


def environment():
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
    path = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
    return {**env, "PATH": path, "TERM": "dumb", "PS1": "> ", "HISTFILE": "/dev/null"}


def completed(shell, start, typed, folder):
    """What the line is after TAB, in a shell on a terminal of its own."""
    # not pty.fork(), of which JAX, loaded in this process, warns
    terminal, of_shell = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), of_shell)
    process = subprocess.Popen(
        shell, cwd=folder, env=environment(), start_new_session=True, **streams
    )
    os.close(of_shell)
    # Ctrl-A, and a command before it: the shell prints the line rather than run it
    os.write(terminal, f"{start}\n{typed}\t\x01echo is: \n".encode())
    said, until = "", time.monotonic() + 60
    while not re.search(r"^is: .*\n", said, re.MULTILINE) and time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 65536).decode(errors="replace").replace("\r", "")
    os.write(terminal, b"exit\n")
    os.close(terminal)
    process.wait()
    found = re.search(r"^is: (.*)\n", said, re.MULTILINE)
    assert found, said
    return found[1].strip()


def without(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed here")


@pytest.mark.weekly
@pytest.mark.parametrize("typed", TYPED)
def test_bash_completes(typed, here):
    assert (
        completed(["bash", "--norc", "--noprofile", "-i"], line_for("bash"), typed, here)
        == TYPED[typed]
    )


@without("zsh")
@pytest.mark.parametrize("typed", TYPED)
def test_zsh_completes(typed, here):
    assert completed(["zsh", "-f", "-i"], line_for("zsh"), typed, here) == TYPED[typed]


@without("fish")
@pytest.mark.parametrize("typed", TYPED)
def test_fish_completes(typed, here):
    script = f"{line_for('fish')}; complete --do-complete '{typed}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=here, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    offered = {line.partition("\t")[0].strip() for line in done.stdout.splitlines()}
    assert TYPED[typed].split()[-1] in offered, done.stdout + done.stderr


def test_completion_costs_nothing_else():
    code = "import sys; from xdevice.tools.cli import _parse; _parse(['info'])\n"
    code += (
        "print([m for m in ('argcomplete', 'xdevice.tools.cli.completion') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
