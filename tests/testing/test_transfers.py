"""The mark ``no_transfers`` and the fixture ``transfers``, in runs of pytest of their own, with a small framework."""

import pytest

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


def ran(run, test):
    return run(BEGIN + test, *GPUS)


@pytest.mark.parametrize(
    "test",
    [
        "@pytest.mark.no_transfers\ndef test_it(backend): ones(3, device=gpu()) + 1",
        "@pytest.mark.no_transfers(max_copies=3)\ndef test_it(backend): train(ones((), device=gpu()), 3)",
        "@pytest.mark.no_transfers(max_bytes=12)\ndef test_it(backend): train(ones((), device=gpu()), 3)",
        "@pytest.mark.no_transfers(level='forbid_implicit')\ndef test_it(backend): to_device(ones(3), gpu())",
        "@pytest.mark.no_transfers\ndef test_it(backend): float(ones((), device=gpu()))  # xdevice: allow",
        "def test_it(backend, transfers):\n    train(ones((), device=gpu()), 3)\n    assert transfers.copies == 3",
        "@pytest.mark.no_transfers(max_copies=2, level='forbid_implicit')\ndef test_it(backend): send(4)",
    ],
    ids=["no copies", "copies", "bytes", "explicit", "line allowed", "fixture", "explicit, within a budget"],
)
def test_what_is_within_the_budget_passes(run, test):
    ran(run, test).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("", "*TransferError: test_it.py:7: 4 B, gpu:0 → host: reads a number, *"),
        ("(max_copies=0)", "*TransferError: test_it.py:7: 4 B, gpu:0 → host: reads a number, *"),
        ("(level='forbid_implicit')", "*TransferError: test_it.py:7: 4 B, gpu:0 → host: reads a number, *"),
        ("(max_copies=2)", "3 copies, 12 bytes, and no_transfers(max_copies=2):"),
        ("(max_copies=3, max_bytes=8)", "3 copies, 12 bytes, and no_transfers(max_copies=3, max_bytes=8):"),
        ("(max_copies=-1)", "@pytest.mark.no_transfers: max_copies=-1 is not a whole number of 0 or more"),
        ("(max_bytes='3 kB')", "@pytest.mark.no_transfers: max_bytes='3 kB' is not a whole number of 0 or more"),
        ("('never')", "@pytest.mark.no_transfers: no level 'never'; there are 'allow', 'log', *"),
        ("(copies=3)", "@pytest.mark.no_transfers: *unexpected keyword argument 'copies'"),
    ],
)
def test_what_is_not_fails_with_the_line(run, mark, said):
    test = f"@pytest.mark.no_transfers{mark}\ndef test_it(backend): train(ones((), device=gpu()), 3)"
    result = ran(run, test)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])


def test_a_budget_that_is_exceeded_shows_the_report(run):
    test = "@pytest.mark.no_transfers(max_copies=2)\ndef test_it(backend): train(ones((), device=gpu()), 3)"
    ran(run, test).stdout.fnmatch_lines(
        [
            "test_it.py:7  3 copies (1 each turn of the loop in line 5), 12 B, gpu:0 → host: reads *| float(x)",
            "in all 3 copies, 12 B: *",
        ]
    )


def test_a_test_that_fails_by_itself_says_so(run):
    test = "@pytest.mark.no_transfers(max_copies=1)\ndef test_it(backend): train(ones((), device=gpu()), 3); assert 0"
    result = ran(run, test)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 0*"])
    result.stdout.no_fnmatch_line("*max_copies=1):*")
