"""Turns of loops are counted in every report, and debuggers and coverage tools see the same program."""

import gc
import sys
import threading

import pytest

from xdevice import watch_transfers
from xdevice.contract import Copy
from xdevice.device import Device
from xdevice.framework.adapters import find
from xdevice.transfers import watching

READ = Copy("number", "item", 4, Device("gpu", 0), Device("cpu", 0))
FRAMEWORK = """
def item(copies=1):
    for _ in range(copies):
        see(read)
"""


@pytest.fixture
def item():
    """A library's function that reads numbers."""
    framework = {"see": watching.CopyNotifier(find("numpy")).see, "read": READ}
    exec(compile(FRAMEWORK, "<framework>", "exec"), framework)
    return framework["item"]


def often(report):
    (finding,) = report
    return finding.often.partition(" of the loop")[0]


class Tracer:
    """A trace function that keeps the lines it is called for, as a debugger and a coverage tool do."""

    def __init__(self):
        self.lines = []

    def __call__(self, frame, event, argument):
        if frame.f_code.co_filename == __file__:
            self.lines.append((frame.f_code.co_name, event, frame.f_lineno))
        return self


def read_in_a_loop(item):
    for _ in range(3):
        item()


def traced_from_within_a_loop(item, tracer):
    for turn in range(4):
        item()
        if turn == 1:
            sys.settrace(tracer)
        read_in_a_loop(item)
    sys.settrace(None)


def test_copies_of_one_call_belong_to_one_turn(item):
    with watch_transfers() as report:
        for _ in range(3):
            item(copies=5)
    assert often(report) == "5 each turn"


def test_a_block_within_a_block_counts_turns(item):
    with watch_transfers() as outer, watch_transfers() as inner:
        for _ in range(3):
            item(copies=5)
    assert often(outer) == "5 each turn"
    assert often(inner) == "5 each turn"


def test_a_block_counts_the_turns_since_it_was_opened(item):
    with watch_transfers() as outer:
        for turn in range(6):
            if turn == 3:
                inner = watch_transfers()
                report = inner.__enter__()
            item(copies=2)
        inner.__exit__(None, None, None)
    assert often(outer) == "2 each turn"
    assert often(report) == "2 each turn"
    assert report.copies == 6


def test_no_frame_keeps_a_trace_function_after_the_block(item):
    with watch_transfers() as report:
        for _ in range(3):
            item()
    assert often(report) == "1 each turn"
    frame = sys._getframe()
    while frame is not None:
        assert frame.f_trace is None
        frame = frame.f_back


def test_a_trace_function_that_a_debugger_left_stays(item):
    frame, tracer = sys._getframe(), Tracer()
    frame.f_trace = tracer
    try:
        with watch_transfers() as report:
            for _ in range(3):
                item()
        assert frame.f_trace is tracer
    finally:
        frame.f_trace = None
    assert report.copies == 3


def lines_seen(program, *arguments):
    tracer, previous = Tracer(), sys.gettrace()
    try:
        program(*arguments, tracer)
    finally:
        sys.settrace(previous)
    return tracer.lines


def traced_from_the_start(item, tracer):
    sys.settrace(tracer)
    read_in_a_loop(item)
    sys.settrace(None)


@pytest.mark.parametrize("program", [traced_from_the_start, traced_from_within_a_loop])
def test_a_tracer_sees_the_same_lines(item, program):
    unwatched = lines_seen(program, item)
    with watch_transfers() as report:
        watched = lines_seen(program, item)
    assert watched == unwatched
    assert ("read_in_a_loop", "line") in {(name, event) for name, event, _ in watched}
    assert report.copies > 0


def test_a_mark_goes_when_a_tracer_meets_it(item):
    frame, previous = sys._getframe(), sys.gettrace()
    with watch_transfers() as report:
        for _ in range(3):
            item()
        try:
            sys.settrace(Tracer())
            during = frame.f_trace
        finally:
            sys.settrace(previous)
    assert often(report) == "1 each turn"
    assert during is None


class Cycle:
    """An object that only the garbage collector deletes; its finalizer runs a function."""

    def __init__(self, finalizer):
        self.cycle, self.finalizer = self, finalizer

    def __del__(self):
        self.finalizer()


def other_line(item):
    item()


def open_and_close_a_block():
    with watch_transfers():
        pass


@pytest.mark.parametrize("finalizer", ["item", "block"])
def test_a_finalizer_may_copy_and_watch(item, finalizer):
    finalizers = {"item": item, "block": open_and_close_a_block}
    copies = []

    def collect_often():
        for allocations in range(1, 100):
            gc.collect()
            gc.set_threshold(allocations)  # the collector runs at another place of the copy
            Cycle(finalizers[finalizer])
            with watch_transfers() as report:
                item()
                other_line(item)
            copies.append(report.copies)

    thread = threading.Thread(target=collect_often, daemon=True)
    thresholds = gc.get_threshold()
    gc.freeze()  # a collection looks at this test's objects only, and is fast
    try:
        thread.start()
        thread.join(timeout=120)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    assert not thread.is_alive()
    assert len(copies) == 99
    assert min(copies) >= 2
