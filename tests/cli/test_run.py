"""``xdevice run``, the real command on real scripts, under every framework that is installed here."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import xdevice
from xdevice.tools.cli.program import imported_by
from xdevice.tools.launcher import progress as progress_lines
from xdevice.tools.launcher.children import Child, run_all
from xdevice.tools.launcher.output_buffer import FIRST, LAST

# array-api-strict runs only by name
NAMES = [name for name in xdevice.available() if name != "array_api_strict"]
ONE = NAMES[-1] if NAMES else None  # the lightest
PAIR = "array_api_strict", ONE  # which starts as quickly
pytestmark = pytest.mark.skipif(
    not NAMES, reason="no framework is installed here; the others' environments have one"
)

# Written in the style of a script that any user might have.
WHERE = """
    import xdevice
    x = xdevice.ones((2, 3))
    print("the sum is", float(xdevice.to_numpy(x).sum()))
    print("under", xdevice.backend())
    print("x is on", xdevice.device_of(x))
"""


@pytest.fixture
def script(tmp_path):
    def write(text, name="script.py"):
        import textwrap

        path = tmp_path / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(path)

    return write


def words_of(*arguments):
    return [sys.executable, "-m", "xdevice", *map(str, arguments)]


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("XDEVICE")}


@pytest.fixture
def run_words(python):
    return lambda *words: python("-m", "xdevice", "run", *words)


@pytest.fixture
def run(run_words):
    return lambda script, *options: run_words(*options, script)


@pytest.fixture
def run_json_words(run_words):
    def run(*words):
        done = run_words("--json", *words)
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def run_json(run_json_words):
    return lambda script, *options: run_json_words(*options, script)


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pids):
    until = (
        time.monotonic() + 30
    )  # as the command says, they have been killed: the kernel may be busy
    while time.monotonic() < until and any(map(alive, pids)):
        time.sleep(0.05)
    return not any(map(alive, pids))


@pytest.mark.weekly
def test_one_script_under_every_framework(script, run_json):
    status, report = run_json(script(WHERE), "--backend", "all")
    assert status == 0
    assert [r["backend"] for r in report["runs"]] == NAMES
    for one in report["runs"]:
        assert one["status"] == "ok"
        assert one["exit_status"] == 0
        assert f"under {one['backend']}\n" in one["stdout"]
        assert one["seconds"] > 0
        assert one["peak_memory"] > 10 * 2**20
    lines = [part["line"] for part in report["output"] if "line" in part]
    assert "the sum is 6.0" in lines
    assert "x is on cpu:0" in lines


def test_a_framework_without_virtual_gpus_is_left_out_of_all():
    code = (
        "from xdevice.tools.cli.run import _with_virtual_gpus\n"
        "print(_with_virtual_gpus(['torch', 'numpy'], are_chosen=False))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['torch']\n"
    assert done.stderr == "xdevice: numpy is left out: it has no virtual GPUs\n"


def test_the_reference_implementation_runs_only_by_name(script, run_json):
    path = script("import xdevice; print(xdevice.backend())")
    _, report = run_json(path, "--backend", f"strict,{ONE}")
    assert [one["backend"] for one in report["runs"]] == ["array_api_strict", ONE]


def test_no_device_is_left_out_of_all(with_toy, tmp_path):
    (tmp_path / "short.py").write_text("print('ran')", encoding="utf-8")
    for kinds, names in (("gpu", NAMES), ("cpu gpu", [*NAMES, "toy"])):
        done = with_toy(
            "good",
            "run",
            "--backend",
            "all",
            "--json",
            "short.py",
            status=0,
            TOY_KINDS=kinds,
            TOY_GPUS="0",
        )
        assert [one["backend"] for one in json.loads(done.stdout)["runs"]] == names
        assert ("xdevice: toy is left out: toy is built for cuda 12.6" in done.stderr) is (
            kinds == "gpu"
        )
    named = with_toy(
        "good", "run", "--backend", "toy", "short.py", status=0, TOY_KINDS="gpu", TOY_GPUS="0"
    )
    assert "✓ toy" in named.stdout


@pytest.mark.weekly
def test_a_table_and_a_view_are_shown(script, run):
    done = run(script(WHERE))
    assert done.returncode == 0
    for name in NAMES:
        assert f"✓ {name}" in done.stdout
    for heading in ("framework", "result", "wall time", "peak memory"):
        assert heading in done.stdout
    assert done.stdout.count("the sum is 6.0") == 1


def test_a_file_has_whole_plain_lines(script, run):
    done = run(script("print('\\x1b[31mred\\x1b[0m', '\\a', 'x' * 500)"), "--backend", ONE)
    assert "red ␇ " + "x" * 500 in done.stdout
    for stream in (done.stdout, done.stderr):
        assert all(c == "\n" or c.isprintable() for c in stream)
        assert all(line == line.rstrip() for line in stream.splitlines())


@pytest.mark.parametrize("before", [[], ["--"], ["python"], ["--", "python3"]], ids=" ".join)
def test_what_follows_the_script_is_its_own(script, before, run_json_words):
    path = script("import sys; print(sys.argv[1:])")
    own = ["--backend", "nccl", "--jobs", "many", "--json", "-v", "--stict", "--", "--help"]
    status, report = run_json_words("--backend", ONE, *before, path, *own)
    assert status == 0
    assert report["runs"][0]["stdout"].strip() == str(own)
    assert report["args"] == own


@pytest.mark.parametrize(
    "first", [["-m"], ["--", "-m"], ["python", "-m"], [sys.executable, "-m"]], ids=" ".join
)
def test_a_module_runs_as_under_python(script, monkeypatch, tmp_path, first, run_json_words):
    script("import sys; print(__name__, sys.argv[1:])", "beside.py")
    monkeypatch.chdir(tmp_path)
    status, report = run_json_words("--backend", ONE, *first, "beside", "-v", "word")
    assert status == 0
    assert report["runs"][0]["stdout"].strip() == "__main__ ['-v', 'word']"


def test_an_emulated_program_has_its_arguments_its_input_and_its_status(script, python):
    path = script("""
        import beside, sys
        print(sys.argv[1:], __name__, beside.VALUE, sys.stdin.read())
        sys.exit(3)
    """)
    script("VALUE = 7", "beside.py")
    own = ["--backend", "nccl", "--gpus", "many", "--json", "--", "--help"]
    for between in ([], ["--"]):
        done = python("-m", "xdevice", "emulate", "--gpus=2", *between, path, *own, stdin="typed")
        assert done.returncode == 3, done.stderr
        assert done.stdout == f"{own} __main__ 7 typed\n", done.stderr


@pytest.mark.parametrize(("text", "expected"), [
    ("import torch.nn as nn, os", ["torch"]),
    ("import os\nfrom tensorflow.keras import layers\nimport jax", ["jax", "tensorflow"]),
    ("try:\n    import jax\nexcept ImportError:\n    jax = None\ndef f():\n    import torch", []),
    ("import mytorch, os.torch", []),
    ("from . import torch", []),
    ("no python", []),
    ("\0", []),
])  # fmt: skip
def test_a_scripts_frameworks_are_known(script, text, expected):
    assert sorted(imported_by(Path(script(text)))) == expected


@pytest.mark.parametrize(("arguments", "says"), [
    (["-m", "{script}"], "without -m a script is given by its path"),
    (["-m", "nowhere"], "no module 'nowhere' here"),
    (["-m"], "SCRIPT"),
    (["--", "python"], "'python' takes a script here, or -m or -c, and no other option"),
    (["python", "-u", "{script}"], "'python' takes a script here, or -m or -c"),
    (["nowhere.py"], "'nowhere.py' does not exist"),
    (["."], "'.' is a folder, not a script"),
    ([], "SCRIPT"),
    (["--stepz", "nowhere.py"], "unknown option '--stepz'"),
    (["--backend", "pytorch", "{script}"], "no backend 'pytorch'"),
    (["--backend", "", "{script}"], "no backend ''"),
    (["--jobs", "0", "{script}"], "'0' is not a whole number"),
    (["--timeout", "-1", "{script}"], "'-1' is not a number of seconds"),
    (["--timeout", "soon", "{script}"], "'soon' is not a number of seconds"),
    (["--tolerance", "nan", "{script}"], "'nan' is not a tolerance"),
    (["--env", "nox", "{script}"], "'nox'"),
])  # fmt: skip
def test_a_mistake_is_one_line_and_status_2(script, tmp_path, arguments, says, command):
    mark = tmp_path / "ran"
    path = script(f"open({str(mark)!r}, 'w')")
    done = command("run", *(a.replace("{script}", path) for a in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    assert not mark.exists()
    assert done.stderr.startswith("xdevice: error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_not_installed_says_what_to_type(script, run):
    missing = {"torch": "pip install torch", "mxnet": "pip install --no-deps mxnet==1.9.1"}
    for name in missing.keys() - set(NAMES):
        done = run(script("print(1)"), "--backend", f"{ONE},{name}")
        assert done.returncode == 2
        assert missing[name] in done.stderr


def test_a_failure_shows_what_was_printed(script, run):
    path = script(
        "print('so far'); import xdevice; raise ValueError(f'no luck under {xdevice.backend()}')"
    )
    done = run(path, "--backend", ",".join(PAIR))
    assert done.returncode == 1
    for name in PAIR:
        said = (
            done.stdout.partition(f"{name}: exit 1; it has printed this:\n")[2]
            .partition("\n\n")[0]
            .splitlines()
        )
        assert "  so far" in said
        assert "  Traceback (most recent call last):" in said
        assert said[-1].strip() == f"ValueError: no luck under {name}"


def test_a_failure_shows_streams_in_order(script, run):
    path = script("""
        import sys, time
        for stream in (sys.stdout, sys.stderr, sys.stdout):
            print("on", stream.name, file=stream)
            time.sleep(1)  # the order of two streams is known only to the time between two looks
        sys.exit(1)
    """)
    said = run(path, "--backend", ONE).stdout.partition("it has printed this:\n")[2]
    assert said.splitlines() == ["  on <stdout>", "  on <stderr>", "  on <stdout>"]


@pytest.mark.weekly
def test_a_failure_shows_both_ends_of_much(script, run):
    path = script("""
        import sys
        for i in range(40_000):
            print("line", i, "x" * 20)
        sys.exit("the end")
    """)
    said = run(path, "--backend", ONE).stdout.partition("it has printed this:\n")[2].splitlines()
    assert said[0].startswith("  line 0 ")
    assert said[FIRST - 1].startswith(f"  line {FIRST - 1} ")
    assert said[FIRST] == f"  … {40_001 - FIRST - LAST} lines are left out here"
    assert said[-2].startswith("  line 39999 ")
    assert said[-1] == "  the end"
    assert len(said) == FIRST + LAST + 1


def test_one_failure_is_enough(script, run_json):
    path = script(
        f"import xdevice, sys; print('hi'); sys.exit(7 if xdevice.backend() == {ONE!r} else 0)"
    )
    status, report = run_json(path, "--backend", ",".join(PAIR))
    assert status == 1
    assert report["compared"] == [PAIR[0]]
    assert {r["backend"]: r["exit_status"] for r in report["runs"]} == {PAIR[0]: 0, ONE: 7}


def test_a_crash_is_a_row_with_its_signal(script, run, run_json):
    path = script(
        "import os, signal; print('about to', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    )
    status, report = run_json(path, "--backend", ONE)
    (row,) = report["runs"]
    assert status == 1
    assert row["status"] == "failed"
    assert row["signal"] == "SIGSEGV"
    assert row["stdout"] == "about to\n"
    assert "killed by SIGSEGV" in run(path, "--backend", ONE).stdout


@pytest.mark.weekly
def test_one_that_ignores_sigterm_is_killed(script, run_json):
    path = script("""
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        time.sleep(600)
    """)
    status, report = run_json(path, "--backend", ONE, "--timeout", "4")
    (row,) = report["runs"]
    assert status == 1
    assert row["status"] == "timed out"
    assert row["signal"] == "SIGKILL"
    assert not alive(int(row["stdout"]))


# A child, and a daemon that nothing but its environment connects with the script.
LEAVES = """
    import os, subprocess, sys, time
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            os.write(write, str(subprocess.Popen(sleep, start_new_session=True, **null).pid).encode())
        os._exit(0)
    pids = f"{os.getpid()} {subprocess.Popen(sleep).pid} {os.read(read, 100).decode()}\\n"
"""


@pytest.mark.weekly
@pytest.mark.parametrize(("end", "options", "result"), [
    ("", [], "ok"),
    ("time.sleep(600)", ["--timeout", "4"], "timed out"),
])  # fmt: skip
def test_what_is_left_running_is_stopped(script, end, options, result, run_json):
    status, report = run_json(
        script(f"{LEAVES}    print(pids, flush=True)\n    {end}"), "--backend", ONE, *options
    )
    (row,) = report["runs"]
    assert (status, row["status"]) == (result != "ok", result)
    family = [int(pid) for pid in row["stdout"].split()]
    assert len(family) == 3
    assert gone(family)


@pytest.mark.weekly
def test_scripts_stop_their_own_daemons_only(script, tmp_path, run_json):
    if len(NAMES) < 2:
        pytest.skip("this environment has one framework: nothing runs beside it")
    path = script(f"""
        import subprocess, sys, xdevice
        ended = {str(tmp_path / "ended")!r}
        if xdevice.backend() == {ONE!r}:
            open(ended, "w").close()
        else:
            waits = "import os, sys, time\\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)\\ntime.sleep(3)"
            sys.exit(subprocess.Popen([sys.executable, "-c", waits, ended], start_new_session=True).wait())
    """)
    status, report = run_json(path, "--backend", f"{NAMES[0]},{ONE}", "--jobs", "2")
    assert status == 0
    assert [row["exit_status"] for row in report["runs"]] == [0, 0]


def test_a_killed_command_leaves_nothing(script, tmp_path):
    pids = tmp_path / "pids"
    path = script(f"{LEAVES}    open({str(pids)!r}, 'w').write(pids); time.sleep(600)")
    process = subprocess.Popen(words_of("run", "--backend", ONE, path), env=clean_environment())
    until = time.monotonic() + 60
    while not (pids.exists() and pids.read_text().endswith("\n")) and time.monotonic() < until:
        time.sleep(0.05)
    family = [int(pid) for pid in pids.read_text().split()]
    assert len(family) == 3
    assert all(map(alive, family))
    process.kill()
    process.wait()
    assert gone(family)


def test_binary_output_is_called_binary(script, run, run_json):
    path = script("import sys; sys.stdout.buffer.write(bytes(range(256)) * 3 + b'\\nend\\n')")
    status, report = run_json(path, "--backend", ONE)
    assert status == 0
    assert report["runs"][0]["binary"]
    assert report["runs"][0]["stdout"].endswith("end\n")
    done = run(path, "--backend", ONE)
    assert done.returncode == 0
    assert "not text (UTF-8)" in done.stdout
    assert "end" in done.stdout
    assert all(c == "\n" or c.isprintable() or c == "\t" for c in done.stdout)


def test_text_in_any_language_is_text(script, run_json):
    status, report = run_json(script("print('设备 Gerät 🙂')"), "--backend", ONE)
    assert status == 0
    assert not report["runs"][0]["binary"]
    assert report["runs"][0]["stdout"] == "设备 Gerät 🙂\n"


@pytest.mark.weekly
def test_much_output_does_not_block(script, run, run_json):
    path = script("""
        import sys
        for i in range(60_000):
            print("line", i, "x" * 20)
            print("x" * 20, file=sys.stderr)
    """)
    status, report = run_json(path, "--backend", ONE)
    (row,) = report["runs"]
    assert status == 0
    assert row["cut"]
    assert len(row["stdout"]) <= 2**20
    assert len(row["stderr"]) <= 2**20
    done = run(path, "--backend", ONE)
    assert "prints more than is shown" in done.stdout
    assert done.stdout.count("\n") < 2100


@pytest.mark.weekly
def test_endless_output_is_stopped(script, run_json):
    status, report = run_json(script("while True: print('x' * 2**20)"), "--backend", ONE)
    (row,) = report["runs"]
    assert status == 1
    assert row["status"] == "flooded"
    assert row["cut"]
    assert len(row["stdout"]) == 2**20


def test_stdin_is_empty(script, run_json):
    status, report = run_json(script("import sys; print(repr(sys.stdin.read()))"), "--backend", ONE)
    assert status == 0
    assert report["runs"][0]["stdout"] == "''\n"


@pytest.mark.weekly
def test_peak_memory_includes_that_of_children(script, run_json):
    path = script("""
        import subprocess, sys, time
        hold = "import sys; x = bytearray(200 * 2**20); print(len(x), flush=True); sys.stdin.read()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        children = [subprocess.Popen([sys.executable, "-c", hold], **pipes) for _ in range(2)]
        for child in children: child.stdout.readline()
        time.sleep(3)  # both hold theirs, however slow the machine is
        for child in children: child.communicate()
    """)
    _, report = run_json(path, "--backend", ONE)
    assert 380 * 2**20 < report["runs"][0]["peak_memory"] < 700 * 2**20


@pytest.mark.weekly
def test_a_short_peak_of_memory_is_seen(script, run_json):
    path = script("x = bytearray(300 * 2**20); del x")
    _, report = run_json(path, "--backend", ONE)
    assert 300 * 2**20 < report["runs"][0]["peak_memory"] < 600 * 2**20


def test_differences_fail_under_strict_only(script, run, run_json):
    pair = ",".join(PAIR)
    path = script("import xdevice; print('under', xdevice.backend())")
    status, report = run_json(path, "--backend", pair)
    assert status == 0
    assert report["agree"] is False
    assert run(path, "--backend", pair, "--strict").returncode == 1
    assert run(script("print('one')"), "--backend", pair, "--strict").returncode == 0


def test_numbers_within_the_tolerance_agree(script, run_json):
    pair = ",".join(PAIR)
    path = script(f"import xdevice; print('loss', 0.5 + 1e-4 * (xdevice.backend() == {ONE!r}))")
    assert run_json(path, "--backend", pair)[1]["agree"] is False
    assert run_json(path, "--backend", pair, "--tolerance", "1e-3")[1]["agree"] is True


def test_spellings_agree_if_normalized(script, run_json):
    pair = ",".join(PAIR)
    path = script(
        f"import xdevice; print('on', 'Place(cpu)' if xdevice.backend() == {ONE!r} else '/CPU:0')"
    )
    assert run_json(path, "--backend", pair, "--normalize")[1]["agree"] is True


@pytest.mark.weekly
def test_progress_on_a_terminal_is_live(script):
    path = script("""
        import sys, time
        print("epoch 1 " + 200 * "x")
        time.sleep(2)
        sys.stderr.write("50 %\\r\\x1b[31m60 %")
        time.sleep(2)
        print("the end")
    """)
    outer, inner = pty.openpty()
    started = words_of("run", "--backend", ",".join(NAMES[-2:]), "--jobs", 2, path)
    process = subprocess.Popen(
        started, stdin=inner, stdout=inner, stderr=inner, env={**os.environ, "TERM": "xterm"}
    )
    os.close(inner)
    shown = b""
    while True:
        try:
            shown += os.read(outer, 65536)
        except OSError:  # the last writer has closed it
            break
    os.close(outer)
    live, _, final = shown.decode().rpartition("\x1b[?25h")  # the cursor is shown again
    assert process.wait() == 0
    live = re.sub(r"\x1b\[[\d;]*m", "", live)  # without the colours
    for name in NAMES[-2:]:  # the newest output of each, cut where the terminal ends
        assert re.search(rf"{name} +running .* epoch 1 x+…", live)
        assert re.search(rf"{name} +running .* 60 %", live)
    assert "50 %" not in live
    assert "wall time" not in live
    assert "wall time" in final
    assert "the end" in final
    assert "running" not in final


def test_progress_in_a_file_is_lines(monkeypatch, capfd):
    monkeypatch.setattr(progress_lines, "PERIOD", 0.2)
    code = "import time; print('\\x1b[31mepoch 1', flush=True); time.sleep(1.5); print('epoch 2')"
    children = [Child(name, [sys.executable, "-c", code]) for name in ("one", "two")]
    with progress_lines.Progress("train.py") as progress:
        assert run_all(children, 2, None, progress) is None
    said = capfd.readouterr().err.splitlines()
    assert [child.output()[0].endswith(b"epoch 2\n") for child in children] == [True, True]
    for name in ("one", "two"):
        told = [line for line in said if line.startswith(f"train.py: {name} ")]
        assert any(
            re.fullmatch(rf"train\.py: {name} running \([\d.]+ s\): epoch 1", line) for line in told
        )
        assert re.fullmatch(rf"train\.py: {name} ok \([\d.]+ s\)", told[-1])
        assert len(told) <= 20
    assert all(line.startswith("train.py: ") for line in said)


SLEEPERS = """
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    away = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    open(sys.argv[1], "a").write(f"{os.getpid()} {child.pid} {away.pid}\\n")
    time.sleep(600)
"""


@pytest.mark.weekly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_children_of_children(script, tmp_path, with_ctrl_c, number):
    pids = tmp_path / "pids"
    path = script(SLEEPERS)
    process = subprocess.Popen(
        [*with_ctrl_c, *words_of("run", "--backend", ",".join(NAMES[-2:]), "--jobs", 2, path, pids)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
    )  # fmt: skip
    until = time.monotonic() + 60
    while (
        not pids.exists() or pids.read_text().count("\n") < len(NAMES[-2:])
    ) and time.monotonic() < until:
        time.sleep(0.05)
    family = [int(pid) for pid in pids.read_text().split()]
    assert len(family) == 3 * len(NAMES[-2:])
    assert all(map(alive, family))
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert gone(family), "a child or grandchild has survived"
    assert "stopped" in stdout
    assert "Traceback" not in stderr


@pytest.mark.weekly
def test_ctrl_c_starts_nothing_more(script, tmp_path, with_ctrl_c):
    if len(NAMES) < 2:
        pytest.skip("this environment has one framework: nothing waits")
    pids = tmp_path / "pids"
    process = subprocess.Popen(
        [
            *with_ctrl_c,
            *words_of("run", "--backend", f"{ONE},{NAMES[0]}", "--jobs", 1, "--json", script(SLEEPERS), pids),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
    )  # fmt: skip
    while not pids.exists() or not pids.read_text().endswith("\n"):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=30)
    report = json.loads(stdout)
    assert process.returncode == 130
    assert report["interrupted"] is True
    assert [r["status"] for r in report["runs"]] == ["stopped", "stopped"]
    assert report["runs"][1]["exit_status"] is None
    assert pids.read_text().count("\n") == 1
