"""The output of the processes: complete lines after their ranks, none lost or mixed, and logs."""

import os
import pty
import re
import resource
import subprocess
import sys
import time

import pytest

from xdevice.tools.launcher.output import Lines, LiveLines, Screen

CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("XDEVICE")}


def of_rank(rank, output):
    """What that rank has printed, without the prefixes."""
    prefix = f"[{rank}] ".encode()
    return b"".join(
        line.removeprefix(prefix)
        for line in output.splitlines(keepends=True)
        if line.startswith(prefix)
    )


def test_each_stream_stays_what_it_was(script, launch):
    done = launch("-n", 2, script("print('out', rank); print('err', rank, file=sys.stderr)"))
    assert sorted(done.stdout.splitlines()) == [b"[0] out 0", b"[1] out 1"]
    assert sorted(done.stderr.splitlines()) == [b"[0] err 0", b"[1] err 1"]


@pytest.mark.weekly
def test_a_flood_is_not_lost_or_mixed(script, launch):
    path = script("""
        text = "".join(f"line {i} of rank {rank}\\n" for i in range(50_000))
        for start in range(0, len(text), 1013):  # cut anywhere
            os.write(1, text[start:start + 1013].encode())
    """)
    done = launch("-n", 2, path)
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == 100_000
    for rank in range(2):
        assert of_rank(rank, done.stdout) == b"".join(
            b"line %d of rank %d\n" % (i, rank) for i in range(50_000)
        )


@pytest.mark.weekly
def test_any_bytes_come_out_unchanged(script, launch):
    path = script("""
        out = sys.stdout.buffer
        out.write(b"x" * 5_000_000 + b"\\n" + bytes(range(256)) + b"\\n" + b" 5 %\\r10 %\\r\\n" + b"\\n\\n" + b"no end")
    """)
    done = launch("-n", 2, path)
    whole = (
        b"x" * 5_000_000
        + b"\n"
        + bytes(range(256))
        + b"\n"
        + b" 5 %\r10 %\r\n"
        + b"\n\n"
        + b"no end\n"
    )
    for rank in range(2):
        prefix = b"[%d] " % rank
        lines = [line for line in re.findall(rb"[^\n]*\n", done.stdout) if line.startswith(prefix)]
        assert b"".join(line.removeprefix(prefix) for line in lines) == whole


def test_a_line_is_shown_as_soon_as_it_ends(script, start, tmp_path):
    path = script("""
        print("now")
        while not os.path.exists("seen"): time.sleep(0.01)
    """)
    launcher = start("-n", 1, "--time-limit", 30, path)
    assert launcher.stdout.readline() == b"[0] now\n"
    (tmp_path / "seen").touch()
    assert launcher.wait(timeout=60) == 0


@pytest.mark.weekly
def test_a_slow_reader(script, start):
    path = script("""
        while True:
            os.write(1, b"x" * 100 + b"\\n")
    """)
    launcher = start("-n", 2, "--time-limit", 4, path)
    time.sleep(5)  # without reading
    out, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 124
    assert b"time limit" in err
    assert set(out.splitlines()) == {b"[0] " + b"x" * 100, b"[1] " + b"x" * 100}


@pytest.mark.weekly
def test_a_closed_pipe_ends_the_job(script, start, noted, gone):
    path = script("""
        note(f"pid{rank}", os.getpid())
        while True:
            print("channel")
    """)
    launcher = start("-n", 2, path)
    pids = [int(noted(f"pid{rank}")) for rank in range(2)]
    launcher.stdout.readline()
    launcher.stdout.close()
    assert launcher.wait(timeout=60) == 1
    assert b"Traceback" not in launcher.stderr.read()
    assert gone(*pids)


def test_no_output_is_lost_at_the_end(script, launch):
    done = launch("-n", 2, script("os.write(1, b'y' * 60_000); os._exit(0)"))
    assert done.stdout.count(b"y") == 120_000


def test_logs_have_all_and_without_prefixes(script, launch, tmp_path):
    path = script(
        "print('out', rank); print('err', rank, file=sys.stderr); os.write(1, bytes(range(256)))"
    )
    done = launch("-n", 2, "--log-dir", "logs/new", path)
    assert done.returncode == 0
    assert b"out 1" in done.stdout
    for rank in range(2):
        assert (tmp_path / f"logs/new/rank-{rank}.out").read_bytes() == b"out %d\n" % rank + bytes(
            range(256)
        )
        assert (tmp_path / f"logs/new/rank-{rank}.err").read_bytes() == b"err %d\n" % rank


@pytest.mark.weekly
def test_earlier_logs_are_left_alone(script, launch, tmp_path):
    for word in ("first", "second", "third"):
        done = launch("--log-dir", "logs", script(f"print({word!r})"))
        assert done.returncode == 0
    assert b"'logs-3'" in done.stderr
    found = [
        (tmp_path / folder / "rank-0.out").read_text() for folder in ("logs", "logs-2", "logs-3")
    ]
    assert found == ["first\n", "second\n", "third\n"]


@pytest.mark.weekly
def test_a_full_log_does_not_end_the_job(script, tmp_path):
    path = script("[print('x' * 99) for _ in range(1000)]; print('end', file=sys.stderr)")
    command = f"ulimit -f 8; exec {sys.executable} -m xdevice launch --log-dir logs {path}"  # 8 KiB for any file
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, timeout=60, env=CLEAN
    )
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == 1000
    assert done.stderr.count(b"rank-0.out' has no more of it: File too large") == 1
    assert (tmp_path / "logs/rank-0.out").stat().st_size == 8192
    assert (tmp_path / "logs/rank-0.err").read_bytes() == b"end\n"


def in_a_terminal(command, cwd):
    """What a terminal is shown."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(command, cwd=cwd, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    shown = b""
    try:
        while piece := os.read(leader, 2**16):
            shown += piece
    except OSError:  # how Linux reports that the other end is closed
        pass
    os.close(leader)
    assert process.wait(timeout=60) == 0
    return shown


@pytest.mark.weekly
def test_a_terminal_has_colours_and_bars(script, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    path = script("""
        for i in range(3):
            print(f"\\r{i} of 3", end="", flush=True)
            time.sleep(1)
        print()
    """)
    shown = in_a_terminal([sys.executable, "-m", "xdevice", "launch", path], tmp_path)
    assert re.search(rb"\x1b\[[0-9;]*m\[0\]", shown)
    plain = re.sub(rb"\x1b\[[0-9;]*m", b"", shown)
    assert plain.count(b"\r\x1b[K[0] 1 of 3") == 1
    assert plain.endswith(b"\r\x1b[K[0] 2 of 3\r\n")


def test_the_screen_with_many_open_files(monkeypatch, tmp_path):
    number = 1500  # select.select ends at 1023
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= number:
        pytest.skip("this system lets this process have fewer open files")
    with open(tmp_path / "shown", "w") as file:
        os.dup2(file.fileno(), number)
    with open(number, "w") as shown:
        monkeypatch.setattr(sys, "stdout", shown)
        screen = Screen()
        screen.show("out", b"a line\n")
    assert not screen.waiting
    assert screen.broken is None
    assert (tmp_path / "shown").read_bytes() == b"a line\n"


def test_a_progress_bar_leaves_its_last_state():
    lines = LiveLines(b"> ")
    assert lines.feed(b"\r 5 %") == b"\r\x1b[K>  5 %"
    assert lines.feed(b"\r10 %\r11 %") == b"\r\x1b[K> 11 %"
    assert lines.feed(b"\r12 %\nnext\r\n") == b"\r\x1b[K> 12 %\n\r\x1b[K> next\n"
    assert lines.end() == b""


def test_a_last_line_is_ended():
    lines = Lines(b"> ")
    assert lines.feed(b"one\ntw") == b"> one\n"
    assert lines.feed(b"o") == b""
    assert lines.end() == b"> two\n"
    assert lines.end() == b""
