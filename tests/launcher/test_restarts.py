"""After a failure the job restarts as often as it was asked to, if that may help."""

import os
import re
import signal
import socket
import time

import pytest

from xdevice.distributed.process_info import block_size
from xdevice.distributed.rendezvous import ports

TELL = """
    attempt = os.environ["XDEVICE_RESTART"]
    print(attempt, os.environ["XDEVICE_MASTER_PORT"], os.environ["XDEVICE_TOKEN"])
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
    attempts, first_ports, tokens = zip(*map(str.split, told[0]), strict=True)
    assert attempts == ("0", "1", "2")
    assert len(set(first_ports)) == len(set(tokens)) == 3


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


def test_each_attempt_has_its_ports(script, launch):
    first = ports.free_block(10)
    done = launch("--restarts", 1, "--master-port", first, script(f"{TELL}\n    sys.exit(1)"))
    assert [int(line.split()[2]) for line in done.stdout.splitlines()] == [
        first,
        first + block_size(1),
    ]


def test_without_ports_the_failed_status_stays(script, launch):
    first = ports.free_block(10)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", first + block_size(1)))
        other.listen()
        done = launch("--restarts", 3, "--master-port", first, script("sys.exit(7)"))
    assert done.returncode == 7
    assert (
        f"xdevice: cannot start the job again: port {first + block_size(1)} is taken"
        in done.stderr.decode()
    )


def test_a_signal_ends_the_wait_for_a_restart(script, start):
    launcher = start("--restarts", 9, script("sys.exit(1)"))
    for line in launcher.stderr:
        if b"in 4 s" in line:
            break
    launcher.send_signal(signal.SIGTERM)
    assert launcher.communicate(timeout=60)[1].endswith(b"xdevice: stopped by SIGTERM\n")
    assert launcher.returncode == 143


@pytest.mark.parametrize(("code", "options", "status"), [
    ("sys.exit(2)", [], 2),  # as argparse ends a script
    ("time.sleep(600)", ["--time-limit", 1], 124),
    ("time.sleep(0.6); sys.exit(5)", ["--time-limit", 4, "-n", 1], 124),  # for all attempts together
])  # fmt: skip
def test_usage_and_time_limit_end_it(script, launch, code, options, status):
    done = launch("-n", 2, *options, "--restarts", 9, script(f"print('ran')\n{code}"))
    assert done.returncode == status
    assert done.stdout.count(b"ran") <= 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_ends_it(script, start, noted, gone, number):
    path = script("""
        attempt = os.environ["XDEVICE_RESTART"]
        note(f"pid{attempt}", os.getpid())
        attempt == "0" and sys.exit(1)
        time.sleep(600)
    """)
    launcher = start("--restarts", 9, path)
    pid = int(noted("pid1"))
    launcher.send_signal(number)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + number
    assert gone(pid)
    assert err.decode().endswith(
        f"xdevice: restart 1 of 9, in 1 s\nxdevice: stopped by {number.name}\n"
    )


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


@pytest.mark.parametrize(("options", "says"), [
    (["--nnodes", 2, "--node-rank", 0, "--master-addr", "a", "--master-port", 12000], "--restarts is for a job on one"),
    (["--engine", "mpi"], "--restarts is not for --engine mpi"),
    (["--master-port", 65510, "-n", 2], "28 ports from 65510 on do not exist; --master-port is 65508 at most"),
])  # fmt: skip
def test_invalid_restarts_start_nothing(script, launch, tmp_path, options, says):
    done = launch("--restarts", 3, *options, script("note('ran')"))
    assert done.returncode == 2
    assert says in done.stderr.decode()
    assert not (tmp_path / "ran").exists()
