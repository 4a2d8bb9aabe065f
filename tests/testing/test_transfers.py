"""The mark ``no_transfers`` and the fixture ``transfers``, in runs of pytest of their own, with a small framework."""

pytest_plugins = ["pytester"]

GPUS = ("--xdevice-backend=pages", "--xdevice-virtual-gpus=2")
BEGIN = """
import pytest, xdevice
from xdevice import gpu, ones, to_device

def train(x, steps):
    for _ in range(steps):
        x = x + 1
        float(x)
    return x

def send(times):
    for _ in range(times):
        to_device(ones((), device=xdevice.cpu()), gpu())
"""


def ran(run, *tests):
    """pytest's run of a file with these functions, each of which is called ``test_it``."""
    return run(
        BEGIN + "\n".join(test.replace("test_it", f"test_{i}") for i, test in enumerate(tests)),
        *GPUS,
    )


def test_what_is_within_the_budget_passes(run):
    tests = [
        "@pytest.mark.no_transfers\ndef test_it(backend): ones(3, device=gpu()) + 1",
        "@pytest.mark.no_transfers(max_copies=3)\ndef test_it(backend): train(ones((), device=gpu()), 3)",
        "@pytest.mark.no_transfers(max_bytes=12)\ndef test_it(backend): train(ones((), device=gpu()), 3)",
        "@pytest.mark.no_transfers(level='forbid_implicit')\ndef test_it(backend): to_device(ones(3), gpu())",
        "@pytest.mark.no_transfers\ndef test_it(backend): float(ones((), device=gpu()))  # xdevice: allow",
        "def test_it(backend, transfers):\n    train(ones((), device=gpu()), 3)\n    assert transfers.copies == 3",
        "@pytest.mark.no_transfers(max_copies=2, level='forbid_implicit')\ndef test_it(backend): send(4)",
    ]
    ran(run, *tests).assert_outcomes(passed=len(tests))


LINE = "*TransferError: test_it.py:7: 4 B, gpu:0 → host: reads a number, *"
WRONG = {
    "": LINE,
    "(max_copies=0)": LINE,
    "(level='forbid_implicit')": LINE,
    "(max_copies=2)": "3 copies, 12 bytes, and no_transfers(max_copies=2):",
    "(max_copies=3, max_bytes=8)": "3 copies, 12 bytes, and no_transfers(max_copies=3, max_bytes=8):",
    "(max_copies=-1)": "@pytest.mark.no_transfers: max_copies=-1 is not a whole number of 0 or more",
    "(max_bytes='3 kB')": "@pytest.mark.no_transfers: max_bytes='3 kB' is not a whole number of 0 or more",
    "('never')": "@pytest.mark.no_transfers: no level 'never'; there are 'allow', 'log', *",
    "(copies=3)": "@pytest.mark.no_transfers: *unexpected keyword argument 'copies'",
}


def test_what_is_not_fails_with_the_line(run):
    body = "def test_it(backend): train(ones((), device=gpu()), 3)"
    result = ran(run, *(f"@pytest.mark.no_transfers{mark}\n{body}" for mark in WRONG))
    result.assert_outcomes(failed=len(WRONG))
    for i, said in enumerate(WRONG.values()):
        result.stdout.fnmatch_lines([f"_* test_{i}[[]pages[]] _*", said])


def test_a_budget_that_is_exceeded_shows_the_report(run):
    test = "@pytest.mark.no_transfers(max_copies=2)\ndef test_it(backend): train(ones((), device=gpu()), 3)"
    ran(run, test).stdout.fnmatch_lines(
        [
            "test_it.py:7  float(x)",
            "    3 copies (1 each turn of the loop in line 5), 12 B, gpu:0 → host: about *",
            "    reads a number, so Python waits for the GPU",
            "in all 3 copies, 12 B: *",
        ]
    )


def test_a_test_that_fails_by_itself_says_so(run):
    test = "@pytest.mark.no_transfers(max_copies=1)\ndef test_it(backend): train(ones((), device=gpu()), 3); assert 0"
    result = ran(run, test)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 0*"])
    result.stdout.no_fnmatch_line("*max_copies=1):*")


OLD = "import xdevice\nfrom xdevice import gpu, ones\n\n\ndef old():\n    float(ones((), device=gpu()))\n"
NEW = "\n\ndef new():\n    return float(ones((), device=gpu()))\n"
TEST = "import pytest, old\n@pytest.mark.no_transfers\ndef test_old(backend): old.old()\n"
NEWER = "@pytest.mark.no_transfers\ndef test_new(backend): old.new()\n"


def test_a_baseline_accepts_the_lines_that_are_in_it(run, pytester):
    pytester.makepyfile(old=OLD)
    baseline = "--xdevice-baseline=accepted.json"
    run(TEST, *GPUS, baseline).stderr.fnmatch_lines(
        ["*no baseline in *accepted.json*--xdevice-update-baseline writes*"]
    )
    run(TEST, *GPUS).assert_outcomes(failed=1)
    run(TEST, *GPUS, baseline, "--xdevice-update-baseline").assert_outcomes(passed=1)
    pytester.makepyfile(old="# a line more\n" + OLD + NEW)
    result = run(TEST + NEWER, *GPUS, baseline)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*TransferError: old.py:11: 4 B, gpu:0 → host: reads a number, *"])


def test_a_baseline_to_be_written_needs_a_file(run):
    run(TEST, *GPUS, "--xdevice-update-baseline").stderr.fnmatch_lines(
        ["*needs --xdevice-baseline=FILE"]
    )
