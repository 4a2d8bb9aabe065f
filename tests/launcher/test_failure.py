"""If one process fails, all process trees are stopped, and the failed rank's stderr comes last."""

import re
import signal
import time

import pytest

from xdevice.distributed import PEER_FAILED
from xdevice.distributed.deadlines import SETTLING


def last_words(done):
    """The launcher's own message at the end of stderr."""
    return re.search(rb"^xdevice: .*", done.stderr, re.MULTILINE | re.DOTALL)[0].decode()


def test_a_good_job_is_silent(script, launch):
    done = launch("-n", 2, script("time.sleep(0.3 * rank)"))  # to end early is not a failure
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.weekly
def test_the_failed_rank_is_shown_last(script, launch):
    path = script("""
        def work():
            if rank == 1:
                raise ValueError("no luck")
            while True:
                print("chatter", file=sys.stderr)
        work()
    """)
    done = launch("-n", 3, path)
    assert done.returncode == 1
    words = last_words(done).splitlines()
    assert words[0] == "xdevice: rank 1 failed with exit status 1; the end of its stderr:"
    assert words[1] == "Traceback (most recent call last):"
    assert words[-1] == "ValueError: no luck"
    assert b"[1] ValueError: no luck\n" in done.stderr


def test_the_exit_status_is_the_failing_ranks(script, launch):
    done = launch("-n", 2, script("sys.exit(255 if rank == 0 else 0)"))
    assert done.returncode == 255
    assert "rank 0" in last_words(done)


@pytest.mark.parametrize("name", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.weekly)])
def test_a_killed_rank_is_named(script, launch, name):
    done = launch("-n", 2, script(f"rank and os.kill(os.getpid(), signal.{name}); time.sleep(60)"))
    assert done.returncode == 128 + getattr(signal, name)
    assert (
        last_words(done)
        == f"xdevice: rank 1 was killed by {name}; it has printed nothing on stderr\n"
    )


def test_the_first_failure_is_shown(script, launch):
    code = f"""
        if rank == 1:
            time.sleep(0.4)
            sys.exit("the cause")
        print("only a victim", file=sys.stderr)
        os._exit({PEER_FAILED})
    """
    done = launch("-n", 3, script(code))
    assert done.returncode == 1
    assert last_words(done).endswith(
        "rank 1 failed with exit status 1; the end of its stderr:\nthe cause\n"
    )


@pytest.mark.weekly
def test_a_failure_elsewhere(script, launch):
    done = launch(
        "-n",
        2,
        script(
            f"time.sleep(rank * 60); print('rank 7 has gone', file=sys.stderr); os._exit({PEER_FAILED})"
        ),
    )
    assert done.returncode == PEER_FAILED
    says = "rank 0 ended because the job failed; the end of its stderr:\nrank 7 has gone\n"
    assert last_words(done) == f"xdevice: {says}"


def test_a_stopped_process_is_not_waited_for(script, launch, noted, gone):
    path = script(f"""
        if rank == 0:
            while not os.path.exists("pid"): time.sleep(0.01)
            time.sleep(0.2)
            note("end", time.time())
            os._exit({PEER_FAILED})
        note("pid", os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)
    """)
    assert launch("-n", 2, path).returncode == PEER_FAILED
    assert time.time() - float(noted("end")) < SETTLING / 2
    assert gone(int(noted("pid")))


STUBBORN = {
    "ignores SIGTERM and is frozen": "signal.signal(signal.SIGTERM, signal.SIG_IGN); frozen = True",
    "prints without end": "spam = True",
}


@pytest.mark.parametrize(
    "how",
    [
        "ignores SIGTERM and is frozen",
        pytest.param("prints without end", marks=pytest.mark.weekly),
    ],
)
def test_the_others_are_stopped(script, launch, noted, gone, how):
    path = script(f"""
        frozen = spam = False
        if rank == 0:
            while not os.path.exists("pid"): time.sleep(0.01)
            time.sleep(0.2)
            sys.exit(3)
        {STUBBORN[how]}
        note("pid", os.getpid())
        if frozen: os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            os.write(1, b"x" * 999 + b"\\n") if spam else time.sleep(60)
    """)
    done = launch("-n", 2, path)
    assert done.returncode == 3
    assert gone(int(noted("pid")))


GRANDCHILDREN = """
child = "import os, time; open('{name}.new', 'w').write(str(os.getpid())); os.rename('{name}.new', '{name}'); "
child += "time.sleep(600)"
for name, how in (("near", {}), ("far", {"start_new_session": True}), ("bare", {"env": {}})):
    if rank == 0:
        subprocess.Popen([sys.executable, "-c", child.replace("{name}", name)], **how)
    while not os.path.exists(name): time.sleep(0.01)
"""


@pytest.mark.weekly
def test_grandchildren_are_stopped(script, launch, noted, gone):
    end = "rank or os.kill(os.getpid(), 9)\ntime.sleep(600)"
    assert launch("-n", 2, script(f"{GRANDCHILDREN}\n{end}")).returncode == 137
    assert gone(*(int(noted(name)) for name in ("near", "far", "bare")))


@pytest.mark.weekly
def test_leftovers_of_a_good_job_stop(script, launch, noted, gone):
    path = script("""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        note("pid", child.pid)
        os._exit(0)
    """)
    assert launch("-n", 1, path).returncode == 0
    assert gone(int(noted("pid")))


@pytest.mark.weekly
def test_the_time_limit_names_who_worked(script, launch):
    done = launch("-n", 3, "--time-limit", 4, script("time.sleep(0 if rank == 1 else 600)"))
    assert done.returncode == 124
    assert (
        last_words(done)
        == "xdevice: stopped after the time limit of 4.00 s; still at work: rank 0, 2\n"
    )


@pytest.mark.weekly
def test_the_job_ends_if_all_running_processes_are_stopped(script, launch, noted, gone):
    path = script("""
        if rank == 1:
            note("pid", os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
    """)
    done = launch("-n", 2, "--time-limit", 50, path)
    assert done.returncode == 128 + signal.SIGSTOP
    assert gone(int(noted("pid")))
    assert (
        last_words(done) == "xdevice: rank 1 is stopped, as by SIGSTOP, and the others have ended\n"
    )


@pytest.mark.weekly
def test_a_process_that_is_stopped_for_a_moment_goes_on(script, launch):
    path = script("""
        if rank == 1:
            subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
            print("goes on")
    """)
    done = launch("-n", 2, "--time-limit", 50, path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"[1] goes on\n", b"")
