"""What a report says, in each of its formats."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import xdevice
from xdevice.hardware.bus import Bus
from xdevice.tools.cli import watch
from xdevice.transfers.report import NO_GPU

EPOCH = """
    total_loss = 0
    for _ in range(12):
        loss = Tensor()
        step()
        total_loss += loss.item()
    x = Tensor(25_000_000).to("gpu")
    print_loss = loss.item()  # xdevice: allow
"""


def test_a_finding_is_a_line_of_the_program_with_what_to_write_under_it(reported):
    assert reported(EPOCH).to_text().splitlines()[:6] == [
        "main.py:6  total_loss += loss.item()",
        "    12 copies (1 a step), 48 B, gpu:0 → host: about 0.12 ms",
        "    reads a number, so Python waits for the GPU",
        "    help: add on the device, read once per epoch",
        'main.py:7  x = Tensor(25_000_000).to("gpu")',
        "    1 copy, 23.8 MiB, host → gpu:0: about 1 ms",
    ]


def test_the_last_lines_say_the_totals_the_bus_and_what_is_allowed(reported):
    assert reported(EPOCH, Bus.parsed("16GB/s,5us")).to_text().splitlines()[6:8] == [
        "in all 13 copies, 23.8 MiB: 1.6 ms at 16 GB/s and 5 µs a copy, a stated bus; 1",
        "        copy more allowed by `# xdevice: allow`",
    ]


LONG = """
    loss = Tensor()
    for _ in range(12):
        total = 0.25 * loss.item() + sum([0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]) / 10
"""


@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_line_is_wider_than_asked_and_nothing_is_lost(reported, width):
    report = reported(LONG)
    lines = report.to_text(width).splitlines()
    assert width - 20 < max(map(len, lines)) <= width
    assert " ".join(lines).split() == report.to_text(1000).split()


@pytest.mark.parametrize(("columns", "width"), [("100", 100), ("1", 40)])
def test_a_report_is_as_wide_as_the_terminal(reported, monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    report = reported(LONG)
    assert str(report) == report.to_text(width)


def test_what_can_be_mended_comes_first_and_the_worst_of_it_first(reported):
    report = reported(
        """
        a, b = Tensor(), Tensor()
        Tensor(10**9).to("gpu")
        for _ in range(4):
            print(a.item())
            print(b.item(), b.item())
        """
    )
    assert [(each.line, each.rule) for each in report] == [
        (6, "number-per-step"),
        (5, "number-per-step"),
        (3, ""),
    ]
    assert len(report) == 3


@pytest.mark.parametrize(
    ("loop", "often", "per_step"),
    [
        ("for _ in range(4):\n    x.item(); step()", "1 a step", 1),
        ("for _ in range(4):\n    x.item(); x.item(); step()", "2 a step", 2),
        ("for i in range(40):\n    step()\n    if i % 10 == 0: x.item()", "1 every 10 steps", 0.1),
        ("for i in range(40):\n    step()\n    if i % 2 == 0: x.item()", "1 every 2 steps", 0.5),
        ("for _ in range(4):\n    x.item()", "1 each turn of the loop in line 2", None),
        ("step()\nx.item()", "", None),
        ("for i in range(40):\n    if i % 10 == 0:\n        x.item()", "", None),
        (
            "for i in range(40):\n    if x.item() < 0:\n        break",
            "1 each turn of the loop in line 2",
            None,
        ),
        (
            "for _ in range(6):\n    step()\nfor _ in range(8):\n    x.item()",
            "1 each turn of the loop in line 4",
            None,
        ),
        ("def read():\n    return x.item()\nread()\nread()\nread()", "", None),
        (
            "def read():\n    return x.item()\nfor _ in range(3):\n    read()",
            "1 each turn of the loop in line 4",
            None,
        ),
    ],
)
def test_a_step_is_not_claimed_where_none_is_known(reported, loop, often, per_step):
    (finding,) = reported("x = Tensor()\n" + loop)
    assert (finding.often, finding.per_step) == (often, per_step)


def test_json_has_the_findings_and_the_totals(reported):
    found = json.loads(reported(EPOCH).to_json())
    assert (found["steps"], found["copies"], found["nbytes"], found["allowed"]) == (
        12,
        13,
        25_000_048,
        1,
    )
    assert found["bus"] == {"bytes_per_second": 25e9, "seconds_per_copy": 1e-5}
    first = found["findings"][0]
    assert (first["line"], first["from"], first["to"], first["copies"]) == (6, "gpu:0", "host", 12)
    assert (first["rule"], first["per_step"], first["kind"]) == ("sum-on-the-host", 1, "number")
    assert first["estimate"] == pytest.approx(0.00012, rel=1e-3)


def test_github_gets_a_warning_for_each_line_to_mend(reported):
    (line,) = watch.github(reported(EPOCH)).splitlines()
    assert line.startswith(
        "::warning file=main.py,line=6,title=sum-on-the-host::12 copies (1 a step), 48 B"
    )


def test_without_a_gpu_it_says_what_to_type():
    with xdevice.using("numpy"), xdevice.watch_transfers() as report:
        xdevice.ones(3)
    assert len(report) == 0
    program = """
        import numpy, xdevice
        with xdevice.using("numpy"), xdevice.watch_transfers() as report:
            xdevice.ones(3)
        print(report)
    """
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    ran = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(ran, env=env, capture_output=True, text=True, check=True)
    assert " ".join(done.stdout.split()) == NO_GPU
    assert max(map(len, done.stdout.splitlines())) <= 80, "a pipe has no width"
