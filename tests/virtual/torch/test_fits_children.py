"""``xdevice fits`` measures the child processes of a program, or says that it cannot."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xdevice.virtual.fits.estimate import KERNELS
from xdevice.virtual.models import CONTEXT

pytestmark = pytest.mark.usefixtures("plug_in")
PROGRAM = Path(__file__).with_name("fits_children.py")
MIB = 1 << 20


@pytest.fixture
def fits(tmp_path):
    """Runs fits_children.py, or another command, under ``xdevice fits``; the status, and the report."""

    def run(*words, size="8GiB", options=(), command=(str(PROGRAM),)):
        report = tmp_path / "report"
        start = [sys.executable, "-m", "xdevice", "fits", *options]
        done = subprocess.run(
            [*start, "--format", "json", "--report", str(report), size, *command, *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": ""},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert report.exists(), done.stderr
        return done.returncode, json.loads(report.read_text())

    return run


def reserved(report):
    return sorted(gpu["reserved"] // MIB for gpu in report["gpus"])


def least(mebibytes):
    counted = mebibytes * MIB
    return counted + int(counted * KERNELS[""].least) + CONTEXT[0]


def most(*mebibytes):
    counted = [number * MIB for number in mebibytes]
    return sum(each + int(each * KERNELS[""].most) + CONTEXT[1] for each in counted)


@pytest.mark.weekly
def test_a_child_is_measured_and_its_parent_is_not_said_to_use_nothing(fits):
    status, report = fits("subprocess")
    assert (status, report["answer"], reserved(report)) == (0, "fits", [300])
    assert report["needs"] == {"least": least(300), "most": most(300)}


@pytest.mark.weekly
@pytest.mark.parametrize(
    "start", ["fork", "spawn", "forkserver", "exec", "raw_fork", "subprocess_that_execs"]
)
def test_every_way_of_starting_a_child_is_measured(fits, start):
    status, report = fits(start)
    assert (status, report["answer"], reserved(report)) == (0, "fits", [300])


@pytest.mark.weekly
def test_a_child_that_needs_too_much_makes_the_answer_no(fits):
    status, report = fits("spawn", size="350MiB")
    assert (status, report["answer"]) == (1, "does not fit")


@pytest.mark.weekly
def test_processes_that_run_at_once_are_added_to_the_most(fits):
    status, report = fits("two_at_once")
    assert (status, reserved(report)) == (0, [100, 200])
    assert report["needs"] == {"least": least(200), "most": most(100, 200)}


@pytest.mark.weekly
def test_processes_one_after_the_other_are_not_added(fits):
    status, report = fits("one_after_the_other")
    assert (status, reserved(report)) == (0, [100, 200])
    assert report["needs"]["most"] == most(200)


@pytest.mark.weekly
def test_workers_that_a_pool_terminates_are_measured(fits):
    status, report = fits("pool")
    assert (status, report["answer"], max(reserved(report))) == (0, "fits", 200)


@pytest.mark.weekly
def test_processes_on_gpus_of_their_own_are_not_added(fits):
    status, report = fits("visible_devices", options=("--gpus", "2"))
    assert (status, report["answer"]) == (0, "fits")
    assert sorted(gpu["device"] for gpu in report["gpus"]) == ["gpu:0", "gpu:1"]
    assert report["needs"]["most"] == most(300)


@pytest.mark.weekly
def test_a_child_that_is_killed_is_not_said_to_fit_but_what_it_had_counts(fits):
    status, report = fits("killed")
    assert (status, report["answer"], reserved(report)) == (3, "cannot be told", [300])
    assert "was killed, or still runs, and what else it needs was not measured" in report["reason"]


@pytest.mark.weekly
def test_a_child_that_is_killed_and_needs_too_much_does_not_fit(fits):
    assert fits("killed", size="350MiB")[0] == 1


@pytest.mark.weekly
@pytest.mark.parametrize("start", ["isolated", "without_environment"])
def test_a_python_that_cannot_be_measured_is_named(fits, start):
    status, report = fits(start)
    assert (status, report["answer"]) == (3, "cannot be told")
    assert "1 of these Python processes did not report what they need" in report["reason"]


@pytest.mark.weekly
def test_a_child_that_fails_is_not_said_to_fit(fits):
    status, report = fits("failing")
    assert (status, report["answer"]) == (3, "cannot be told")
    assert "ended with ZeroDivisionError, and what follows was not measured" in report["reason"]


@pytest.mark.weekly
def test_other_programs_are_named_and_not_counted(fits):
    status, report = fits("other_program")
    assert status == 0
    assert any("programs that are not Python: " in each for each in report["not_counted"])


@pytest.mark.weekly
def test_a_program_that_exits_at_once_is_reported(fits):
    status, report = fits("exits_at_once")
    assert (status, report["answer"], reserved(report)) == (0, "fits", [300])
    status, report = fits("exits_at_once_with_status_3")
    assert (status, report["answer"]) == (3, "cannot be told")
    assert "ended with status 3" in report["reason"]


@pytest.mark.weekly
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_program_that_crashes_is_reported_with_what_it_had(fits):
    status, report = fits("crashes")
    assert (status, report["answer"], reserved(report)) == (3, "cannot be told", [300])
    assert "the program was ended by SIGSEGV" in report["reason"]
    assert fits("crashes", size="350MiB")[0] == 1


@pytest.mark.weekly
def test_launchers_are_measured_with_one_gpu_for_each_process(fits):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", str(PROGRAM))
    status, report = fits("train", "3", options=("--gpus", "2"), command=launcher)
    assert (status, report["answer"], report["steps"]) == (0, "fits", 3)
    assert sorted(gpu["device"] for gpu in report["gpus"]) == ["gpu:0", "gpu:1"]
    assert all(gpu["kinds"]["optimizer state"] for gpu in report["gpus"])


@pytest.mark.weekly
def test_steps_stop_every_process_of_a_job(fits):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", str(PROGRAM))
    options = ("--gpus", "2", "--stop-after", "2")
    status, report = fits("train", "1000000", options=options, command=launcher)
    assert (status, report["answer"], report["steps"]) == (0, "fits", 2)
    assert "stopped after 2 steps" in report["not_counted"][0]
