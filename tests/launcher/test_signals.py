"""The launcher is asked to stop, or is killed: no process and no folder is left."""

import os
import signal
import time
from pathlib import Path

import pytest

from xdevice.distributed.deadlines import TERMINATION

CHILDREN = """
    child = "import time; open('ready%d', 'w').close(); time.sleep(600)" % rank
    far = subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
    while not os.path.exists(f"ready{rank}"): time.sleep(0.01)
    note(f"rank{rank}", f"{os.getpid()} {far.pid}")
    note("socket", os.environ["XDEVICE_LAUNCHER"])
    time.sleep(600)
"""


@pytest.fixture
def at_work(script, start, noted):
    """A launcher, all processes of its job, and its socket's folder, once the job runs."""
    launcher = start("-n", 2, script(CHILDREN))
    rows = [list(map(int, noted(f"rank{rank}").split())) for rank in range(2)]
    return launcher, [pid for row in rows for pid in row[:2]], Path(noted("socket")).parent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing(at_work, gone, number):
    launcher, pids, folder = at_work
    assert folder.is_dir()
    launcher.send_signal(number)
    out, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + number
    assert gone(*pids)
    assert not folder.exists()
    assert (out, err.decode()) == (b"", f"xdevice: stopped by {number.name}\n")


@pytest.mark.weekly
def test_ctrl_c_in_a_terminal(at_work, gone):
    launcher, pids, _ = at_work
    assert all(
        os.getpgid(pid) != os.getpgid(launcher.pid) for pid in pids
    )  # not the terminal's business
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(timeout=60) == 130
    assert gone(*pids)


@pytest.mark.weekly
def test_a_second_ctrl_c_kills(script, start, noted, gone):
    path = script("""
        signal.signal(signal.SIGTERM, lambda *_: note("asked"))
        note("pid", os.getpid())
        while True: time.sleep(600)
    """)
    launcher = start("-n", 1, path)
    pid, began = int(noted("pid")), time.monotonic()
    launcher.send_signal(signal.SIGINT)
    noted("asked")
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(timeout=60) == 130
    assert gone(pid)
    assert time.monotonic() - began < TERMINATION  # a bound, since the first one kills after it


@pytest.mark.weekly
def test_a_killed_launcher_leaves_nothing(at_work, gone):
    launcher, pids, folder = at_work
    launcher.kill()
    launcher.wait(timeout=60)
    assert gone(*pids, within=60)
    assert not folder.exists()


def test_a_killed_launcher_leaves_no_frozen_process(at_work, gone):
    launcher, pids, _ = at_work
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    launcher.kill()
    launcher.wait(timeout=60)
    assert gone(*pids, within=60)


@pytest.mark.weekly
def test_the_reaper_ends_with_the_job(script, launch, gone, noted):
    path = script("""
        import psutil
        note("guard", next(p.pid for p in psutil.Process(os.getppid()).children() if p.pid != os.getpid()))
    """)
    assert launch("-n", 1, path).returncode == 0
    assert gone(int(noted("guard")))
