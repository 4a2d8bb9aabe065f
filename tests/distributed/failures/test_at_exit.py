"""The end of jobs in which a process fails at an unusual point. A sleep stands for a hanging engine."""

import textwrap

import pytest

from xdevice.distributed.failures import as_text
from xdevice.distributed.messages import Fingerprint

PLAYS = """
import os, signal, sys, time
from threading import Timer
from xdevice.distributed.group import Group, enter, joining, leave
from xdevice.distributed.launched import LaunchedMembership
from xdevice.distributed.launcher_variables import SOCKET, job_in
from xdevice.distributed.messages import Fingerprint

job = job_in(os.environ)
rank = job.rank

def member(timeout, start=20.0):
    with joining(job):
        made = LaunchedMembership(job, start, {"timeout": timeout}, os.environ[SOCKET])
    enter(Group(membership=made))
    made.timeout = timeout
    return made

def endless():
    time.sleep(600)

def freeze():
    os.kill(os.getpid(), signal.SIGSTOP)

def give_up(seconds=2.0, text="no peer for 2 s"):
    time.sleep(seconds)
    raise RuntimeError(text)
"""


@pytest.fixture
def play(launch, tmp_path):
    def run(code, **options):
        script = tmp_path / "play.py"
        script.write_text(PLAYS + textwrap.dedent(code), encoding="utf-8")
        return launch("numpy", script=script, limit=60, **options)

    return run


@pytest.mark.weekly
def test_a_dead_watchdog_ends_the_job(play):
    done = play("""
        watched = member(600.0)
        watched.enter(Fingerprint("work"))
        if rank == 1:
            Timer(0.5, watched._selector.close).start()  # its next call raises
        watched.work("work that does not end", endless)
    """)
    assert done.status == 75, done.stderr
    assert "[1] xdevice: rank 1 can no longer watch the job: ValueError(" in done.stderr, (
        done.stderr
    )
    assert "[0] xdevice: rank 1 (process " in done.stderr
    assert "in the thread that watches the job" in done.stderr


@pytest.mark.weekly
def test_a_rank_frozen_at_the_start(play):
    done = play("""
        watched = member(2.0, start=2.0)
        watched.work("the start of the engine", endless if rank == 0 else freeze)
    """)
    assert done.status == 75, done.stderr
    assert (
        "the processes waited 2 s inside the start of the engine; rank 1 (process " in done.stderr
    )


@pytest.mark.weekly
@pytest.mark.parametrize("frozen", [0, 1])
def test_an_engine_that_gives_up(play, frozen):
    done = play(f"""
        watched = member(2.0)
        watched.enter(Fingerprint("work"))
        watched.work("work", freeze if rank == {frozen} else give_up)
    """)
    assert done.status == 75, done.stderr
    assert f"rank {frozen} " in done.last, done.stderr
    assert "does not answer: it is stopped" in done.last, done.stderr


@pytest.mark.parametrize(
    "gives_up",
    [
        "rank 1",
        *(
            pytest.param(who, marks=pytest.mark.weekly)
            for who in ("no rank", "rank 0", "both ranks")
        ),
    ],
)
def test_no_rank_is_named_while_all_answer(play, gives_up):
    done = play(f"""
        watched = member(2.0)
        watched.enter(Fingerprint("work"))
        gives_up = {gives_up!r} in ("both ranks", f"rank {{rank}}")
        watched.work("work", give_up if gives_up else endless)
    """)
    assert done.status == 75, done.stderr
    assert "ranks 0, 1 have been inside work for " in done.stderr, done.stderr
    assert (
        "all processes answer: check the network between them, or give a longer timeout"
        in done.stderr
    )
    assert "rank 0 (process" not in done.stderr
    assert "rank 1 (process" not in done.stderr


@pytest.mark.weekly
def test_a_large_transfer_may_take_longer(play):
    done = play("""
        watched = member(1.0)
        watched.enter(Fingerprint("work"))
        # so that rank 0 waits for longer than the timeout, too
        watched.work("a large transfer", lambda: time.sleep(7 + 3 * rank), 30.0)
        watched.enter(Fingerprint("more work"))
        watched.work("a small one", lambda: time.sleep(0.5))
        watched.enter(Fingerprint("shutdown"))
        leave()
    """)
    assert done.status == 0, done.stderr


@pytest.mark.weekly
def test_an_engine_that_fails_late(play):
    done = play("""
        watched = member(2.0)
        watched.enter(Fingerprint("work"))
        if rank == 1:
            watched.work("work", lambda: give_up(2.0, "no memory"))
        watched.enter(Fingerprint("more work"))
    """)
    assert done.status == 1, done.stderr
    assert "DistributedError: work failed on rank 1: no memory" in done.last, done.stderr
    reason = "did not come: its engine failed inside work, before any collective: RuntimeError"
    assert reason in done.stderr, done.stderr


@pytest.mark.weekly
def test_a_failure_before_the_engine(play):
    done = play("""
        watched = member(600.0)
        watched.enter(Fingerprint("work"))
        if rank == 1:
            watched.report_error(ValueError("v"))
            time.sleep(600)
        time.sleep(1)
        watched.work("work that does not end", endless)
    """)
    assert done.status == 75, done.stderr
    assert "rank 1 " in done.last, done.stderr
    assert "raised ValueError: v" in done.last, done.stderr


@pytest.mark.weekly
def test_a_process_out_of_descriptors(play):
    done = play("""
        if rank == 1:
            import resource
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            files = []
            try:
                while True:
                    files.append(open(os.devnull))
            except OSError:
                pass
        member(600.0)
        time.sleep(600)
    """)
    assert done.status == 1, done.stderr
    assert "this process cannot connect to xdevice launch at " in done.last
    assert done.last.endswith(": Too many open files")


LEAVES = {
    "execs": ("os.execvp('sleep', ['sleep', '600'])", 75, "rank 1 (process "),
    "ends with 0": ("os._exit(0)", 75, "has gone: it was killed, or ended without shutdown()"),
    "ends in its handler of SIGTERM": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); os.kill(os.getpid(), signal.SIGTERM)",
        75,
        "ended without shutdown()",
    ),
    "raises in an excepthook": (
        "sys.excepthook = lambda *_: 1 / 0; raise ValueError('v')",
        1,
        "ValueError: v",
    ),
    "raises before a handler that does not return": (
        "import atexit; atexit.register(time.sleep, 600); raise ValueError('v')",
        75,  # the other one has ended, and this one was stopped
        "raised ValueError: v",
    ),
}


@pytest.mark.parametrize(
    "how",
    [
        "ends with 0",
        *(pytest.param(how, marks=pytest.mark.weekly) for how in LEAVES if how != "ends with 0"),
    ],
)
def test_a_process_that_ends_early_is_named(play, how):
    code, status, says = LEAVES[how]
    done = play(f"""
        watched = member(600.0)
        watched.enter(Fingerprint("work"))
        if rank == 1:
            exec({code!r})
        watched.enter(Fingerprint("more work"))
    """)
    assert done.status == status, done.stderr
    assert "rank 1 " in done.stderr, done.stderr
    assert says in done.last, done.stderr


@pytest.mark.weekly
def test_threads_do_not_keep_a_failed_job(play):
    done = play("""
        import threading
        watched = member(600.0)
        watched.enter(Fingerprint("work"))
        threading.Thread(target=time.sleep, args=[600]).start()
        if rank == 1:
            raise ValueError("v")
        watched.enter(Fingerprint("more work"))
    """)
    assert done.status in (1, 75), done.stderr
    assert "rank 1 " in done.stderr, done.stderr
    assert "ValueError: v" in done.last, done.stderr


@pytest.mark.weekly
@pytest.mark.parametrize("how", ["os.close(1); os.close(2)", "full()"])
def test_an_end_without_stderr(play, how):
    done = play(f"""
        import threading

        def full():
            readable, writable = os.pipe()  # which nothing reads: who writes to it waits
            os.set_blocking(writable, False)
            try:
                while True:
                    os.write(writable, b"x" * 4096)
            except BlockingIOError:
                os.set_blocking(writable, True)
            os.dup2(writable, 2)
            threading.Thread(target=print, args=("x",), kwargs={{"file": sys.stderr}}, daemon=True).start()

        watched = member(2.0)
        watched.enter(Fingerprint("work"))
        {how}
        watched.work("work", endless if rank == 0 else freeze)
    """)
    assert done.status == 75, done.stderr


@pytest.mark.weekly
def test_no_process_of_ours_has_a_port(play):
    done = play("""
        import psutil
        watched = member(20.0)
        watched.enter(Fingerprint("work"))
        launcher = psutil.Process().parent()
        ours = [psutil.Process(), launcher, *launcher.children()]
        print(len(ours), [process.net_connections("inet") for process in ours], flush=True)
        path = os.environ[SOCKET]
        print(oct(os.stat(os.path.dirname(path)).st_mode & 0o777), flush=True)
        watched.enter(Fingerprint("shutdown"))
        leave()
    """)
    assert done.status == 0, done.stderr
    for rank in (0, 1):
        assert done.of(rank) == ["5 [[], [], [], [], []]", "0o700"]  # both ranks, and a reaper


@pytest.mark.weekly
def test_a_dead_launcher_ends_the_job(play):
    done = play("""
        member(600.0).enter(Fingerprint("work"))
        if rank == 1:
            os.kill(os.getppid(), signal.SIGKILL)
        endless()
    """)
    assert done.status == -9  # and no process is left


def test_an_error_without_a_message_is_told_by_its_name():
    assert as_text(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert as_text(ValueError("v")) == "ValueError: v"


SHORT = ["float32[3] on cpu at ['a']", "int64[2] on cpu at ['b']"]
LONG = [f"float32[3] on cpu at [{n}]" for n in range(2000)]  # has a digest in place of its texts


@pytest.mark.parametrize(
    ("name", "tensors", "rank_0", "says"),
    [
        ("broadcast", SHORT, SHORT, "calls broadcast where rank 0 calls all_reduce; "),
        ("all_reduce", SHORT[:1], SHORT, "gives all_reduce 1 tensors where rank 0 gives 2; "),
        ("all_reduce", SHORT[:1] * 2, SHORT, f"{SHORT[0]} where rank 0 gives {SHORT[1]}; "),
        ("all_reduce", LONG[1:] + LONG[:1], LONG, " 2000 tensors of other shapes, dtypes or paths"),
    ],
)
def test_the_first_difference_from_rank_0_is_named(name, tensors, rank_0, says):
    own, expected = Fingerprint.of(name, tensors), Fingerprint.of("all_reduce", rank_0)
    assert own.bits() != expected.bits()
    assert says in own.difference(expected)
    assert own == Fingerprint.from_message(own.message())


def test_a_call_is_written_with_its_tensors():
    assert Fingerprint("barrier").text() == "barrier"
    assert Fingerprint.of("broadcast", SHORT).text() == f"broadcast with {', '.join(SHORT)}"
    assert Fingerprint.of("broadcast", LONG).text() == "broadcast with 2000 tensors"
