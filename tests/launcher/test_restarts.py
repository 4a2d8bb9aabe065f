"""After a failure the job restarts as often as it was asked to, if that may help."""

import os
import re
import signal
import time

import pytest

TELL = """
    attempt = os.environ["XDEVICE_RESTART"]
    print(attempt, os.environ["MASTER_PORT"], os.environ["XDEVICE_LAUNCHER"])
"""


def test_a_failed_job_starts_again(script, launch):
    path = script(f"""{TELL}
    note(f"told{{attempt}}by{{rank}}", "")  # a rank that is stopped may have printed half a line
    while not os.path.exists(f"told{{attempt}}by{{1 - rank}}"): time.sleep(0.01)
    rank == 1 and attempt != '2' and sys.exit(3)
    time.sleep(0.2)""")
    done = launch("-n", 2, "--restarts", 5, path)
    assert done.returncode == 0
    said = re.findall("^xdevice: .*", done.stderr.decode(), re.MULTILINE)
    failed = "xdevice: rank 1 failed with exit status 3; it has printed nothing on stderr"
    assert said == [
        failed,
        "xdevice: restart 1 of 5, in 1 s",
        failed,
        "xdevice: restart 2 of 5, in 2 s",
    ]
    told = {
        rank: re.findall(rf"^\[{rank}\] (.*)", done.stdout.decode(), re.MULTILINE)
        for rank in (0, 1)
    }
    assert told[0] == told[1]  # both ranks start again, together
    attempts, ports, sockets = zip(*map(str.split, told[0]), strict=True)
    assert attempts == ("0", "1", "2")
    assert len(set(ports)) == len(set(sockets)) == 3


@pytest.mark.weekly
def test_the_last_status_counts(script, launch, noted, gone):
    path = script("""
        attempt = os.environ["XDEVICE_RESTART"]
        if rank == 0:
            note(f"pid{attempt}", os.getpid())
            time.sleep(600)
        while not os.path.exists(f"pid{attempt}"): time.sleep(0.01)
        sys.exit(10 + int(attempt))
    """)
    done = launch("-n", 2, "--restarts", 2, path)
    assert done.returncode == 12
    assert gone(*(int(noted(f"pid{attempt}")) for attempt in range(3)))


@pytest.mark.weekly
def test_a_signal_ends_the_wait_for_a_restart(script, start):
    launcher = start("--restarts", 9, script("sys.exit(1)"))
    for line in launcher.stderr:
        if b"in 4 s" in line:
            break
    launcher.send_signal(signal.SIGTERM)
    assert launcher.communicate(timeout=60)[1].endswith(b"xdevice: stopped by SIGTERM\n")
    assert launcher.returncode == 143


@pytest.mark.weekly
@pytest.mark.parametrize(("code", "options", "status"), [
    ("sys.exit(2)", [], 2),  # as argparse ends a script
    ("time.sleep(600)", ["--time-limit", 1], 124),
    ("time.sleep(0.6); sys.exit(5)", ["--time-limit", 4, "-n", 1], 124),  # for all attempts together
])  # fmt: skip
def test_usage_and_time_limit_end_it(script, launch, code, options, status):
    done = launch("-n", 2, *options, "--restarts", 9, script(f"print('ran')\n{code}"))
    assert done.returncode == status
    assert done.stdout.count(b"ran") <= 3


@pytest.mark.weekly
def test_a_signal_to_the_launcher_ends_it(script, start, noted, gone):
    path = script("""
        attempt = os.environ["XDEVICE_RESTART"]
        note(f"pid{attempt}", os.getpid())
        attempt == "0" and sys.exit(1)
        time.sleep(600)
    """)
    launcher = start("--restarts", 9, path)
    pid = int(noted("pid1"))
    launcher.send_signal(signal.SIGTERM)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 143
    assert gone(pid)
    assert err.endswith(b"xdevice: restart 1 of 9, in 1 s\nxdevice: stopped by SIGTERM\n")


@pytest.mark.weekly
def test_ctrl_c_ends_a_job_that_restarts(script, start, tmp_path):
    launcher = start("--restarts", 1000, script("open('began', 'w').close(); sys.exit(1)"))
    while not os.path.exists(tmp_path / "began"):
        time.sleep(0.01)
    time.sleep(0.5)
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode in (1, 130)
    assert b"Traceback" not in err
    assert b"restart 1000" not in err
