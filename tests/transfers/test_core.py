"""The core of watching, without a framework: who makes a copy, what a guard forbids, which bus is stated."""

import asyncio
import inspect
import sys
import textwrap
import threading

import pytest

import xdevice
from xdevice import ArgumentError, ArgumentTypeError, TransferError, transfer_guard, watch_transfers
from xdevice.contract import Copy
from xdevice.device import Device
from xdevice.framework.adapters import find
from xdevice.hardware.bus import Bus
from xdevice.transfers import callers, syntax, watching
from xdevice.transfers.syntax import Place

HOST, GPU, OTHER = Device("cpu", 0), Device("gpu", 0), Device("gpu", 1)
FETCH = Copy("copy", "cpu", 8, GPU, HOST)
READ = Copy("number", "item", 4, GPU, HOST)
SEND = Copy("copy", "to", 8, HOST, GPU)
CROSS = Copy("copy", "to", 8, GPU, OTHER)
TELLER = watching.CopyNotifier(find("numpy"))


def make(copy):
    """Make a copy, as an adapter tells of it."""
    TELLER.see(copy)
    return copy


# The bus


@pytest.mark.parametrize(
    ("text", "bus"),
    [
        ("25GB/s,10us", (25e9, 10e-6)),
        ("1.5GiB/s, 2µs", (1.5 * 2**30, 2e-6)),
        ("900MB/s,1ms", (900e6, 1e-3)),
    ],
)
def test_a_bus_is_a_bandwidth_and_a_time(text, bus):
    assert Bus.parsed(text) == pytest.approx(bus)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "25",
        "25GB/s",
        "10us",
        "25,10us",
        "25/s,10us",
        "25GB,10us",
        "25GB/s,10",
        "0GB/s,10us",
        "25GB/s,0us",
    ]
    + ["-1GB/s,10us", "25GB/s,-1us", "25GB/s,10us,3", "25GB/s,10h", "nanGB/s,10us"],
)
def test_a_bus_without_a_unit_or_of_nothing_is_an_error(text):
    with pytest.raises(
        ArgumentError, match=r"is not a bus; write a bandwidth and a time .* 25GB/s,10us"
    ):
        watch_transfers(bus=text)


@pytest.mark.parametrize("bus", [25, None, 2.5, b"25GB/s,10us"])
def test_a_bus_that_is_no_text_is_an_error(bus):
    with pytest.raises(ArgumentTypeError, match=r"is not a string; write a bandwidth"):
        watch_transfers(bus=bus)


# Guards


def test_a_level_that_does_not_exist_is_an_error():
    with pytest.raises(
        ArgumentError,
        match="no level 'never'; there are 'allow', 'log', 'forbid_implicit', 'forbid'",
    ):
        transfer_guard("never")
    with pytest.raises(ArgumentError, match=r"no level 'forbidd'; did you mean 'forbid'\?"):
        transfer_guard("forbidd")
    for given in (3, None, ["forbid"], True):
        with pytest.raises(ArgumentTypeError, match="no level"):
            transfer_guard(given)
    with pytest.raises(ArgumentTypeError, match="no level 3"):
        transfer_guard("allow", device_to_host=3)
    with pytest.raises(ArgumentTypeError):
        transfer_guard("forbid")(3)


@pytest.mark.parametrize(
    ("levels", "refused"),
    [
        ({"level": "allow"}, []),
        ({"level": "log"}, []),
        ({"level": "forbid"}, [FETCH, READ, SEND, CROSS]),
        ({"level": "forbid_implicit"}, [READ]),
        ({"level": "forbid", "device_to_host": "allow"}, [SEND, CROSS]),
        ({"level": "allow", "device_to_host": "forbid_implicit"}, [READ]),
        ({"level": "allow", "host_to_device": "forbid"}, [SEND]),
        ({"level": "allow", "device_to_device": "forbid"}, [CROSS]),
    ],
)
def test_a_level_refuses_its_copies_and_no_others(levels, refused):
    with transfer_guard(**levels):
        for copy in (FETCH, READ, SEND, CROSS):
            if copy in refused:
                with pytest.raises(TransferError):
                    make(copy)
            else:
                make(copy)
    make(FETCH)


def test_the_error_says_where_what_and_what_to_write():
    with transfer_guard("forbid_implicit"), pytest.raises(TransferError) as error:
        make(READ)
    said = str(error.value)
    assert said.split(": ", 1)[1] == (
        "4 B, gpu:0 → host: reads a number, so Python waits for the GPU (item), which "
        "transfer_guard('forbid_implicit') forbids; keep it on the device as a tensor, and read it after the block"
    )
    assert "test_core.py:" in said
    assert isinstance(error.value, RuntimeError)


def test_guards_nest_are_reused_and_decorate():
    guard = transfer_guard("forbid")

    @guard
    def fetch():
        make(FETCH)

    with guard:
        with transfer_guard("allow"):
            make(FETCH)
        with guard, pytest.raises(TransferError):
            make(FETCH)
        with pytest.raises(TransferError):
            make(FETCH)
    with pytest.raises(TransferError):
        fetch()
    make(FETCH)


def test_a_line_that_ends_with_the_comment_is_allowed():
    with transfer_guard("forbid"), watch_transfers() as report:
        TELLER.see(FETCH)  # xdevice: allow
        TELLER.see(FETCH)  # xdevice: allow
        with pytest.raises(TransferError):
            TELLER.see(FETCH)  # xdevice allow
    assert (report.allowed, report.copies) == (2, 0)


def test_threads_and_tasks_have_levels_of_their_own():
    results = []

    def work():
        results.append(make(FETCH))

    async def allowed():
        with transfer_guard("allow"):
            await asyncio.sleep(0)
            make(FETCH)

    async def forbidden():
        with transfer_guard("forbid"):
            await asyncio.sleep(0)
            with pytest.raises(TransferError):
                make(FETCH)

    async def both():
        await asyncio.gather(allowed(), forbidden(), allowed())

    asyncio.run(both())
    with transfer_guard("forbid"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert results == [FETCH]


def test_work_for_another_thread_has_its_levels_and_its_line():
    with transfer_guard("forbid"):
        place = TELLER.here()
    errors = []

    def work():
        try:
            TELLER.see(FETCH, of=place)
        except TransferError as error:
            errors.append(str(error))

    with watch_transfers() as report, transfer_guard("allow"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(errors) == 1
    assert report.copies == 0


# NumPy


def test_numpy_has_nothing_to_see():
    with xdevice.using("numpy"), watch_transfers() as report, transfer_guard("forbid"):
        x = xdevice.ones(3)
        assert (float(x.sum()), x[x > 0].tolist()) == (3, [1, 1, 1])
        xdevice.to_numpy(xdevice.to_device(x, "cpu", copy=True))
    assert (len(report), report.copies, report.nbytes) == (0, 0, 0)


# Who makes a copy

PROGRAM = textwrap.dedent(
    """
    for i in range(2):
        while True:
            a = f(
                x.item(),
                g(x)[i],
            )  # xdevice: allow
            break
        b = [h(x) for x in y]
    def inner():
        if a.any():
            pass
        return x.sum().tolist()
    with block(
        x,
    ):
        c = "x"  # xdevice: allowed
    """
)


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "main.py"
    file.write_text(PROGRAM, encoding="utf-8")
    return lambda line: Place(str(file), line)


@pytest.mark.parametrize(
    ("line", "first", "last"),
    [
        (2, 2, 2),
        (5, 4, 7),
        (7, 4, 7),
        (9, 9, 9),
        (11, 11, 11),
        (13, 13, 13),
        (15, 14, 16),
        (17, 17, 17),
        (99, 99, 99),
    ],
)
def test_a_statement_is_its_lines_and_a_blocks_are_those_of_its_head(line, first, last, program):
    assert syntax.statement(program(line)) == (first, last)


@pytest.mark.parametrize(
    ("line", "allowed"), [(4, True), (5, True), (7, True), (8, False), (17, False)]
)
def test_a_statement_is_allowed_by_its_first_or_last_line(line, allowed, program):
    assert syntax.is_allowed(program(line)) == allowed


@pytest.mark.parametrize(
    ("line", "loops"), [(5, [(3, 8), (2, 9)]), (9, [(9, 9), (2, 9)]), (11, []), (13, []), (15, [])]
)
def test_loops_are_those_of_the_function_the_innermost_first(line, loops, program):
    assert list(syntax.loops(program(line))) == loops


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="an instruction has columns since Python 3.11"
)
@pytest.mark.parametrize(
    ("call", "loops"), [("here([i for i in range(2)])", 0), ("[here(i) for i in range(2)]", 1)]
)
def test_a_comprehension_is_a_loop_around_what_is_inside_it(call, loops, tmp_path):
    file = tmp_path / "comprehension.py"
    file.write_text(f"found = {call}\n", encoding="utf-8")
    spots = []
    here = lambda _: spots.append(callers.spot(sys._getframe(1)))  # noqa: E731
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), {"here": here})
    assert [len(spot.loops) for spot in spots] == [loops] * len(spots)
    assert len(spots) == 1 + loops


def test_a_file_that_cannot_be_read_has_statements_and_no_loops(tmp_path):
    place = Place(str(tmp_path / "none.py"), 3)
    assert (syntax.statement(place), syntax.loops(place), syntax.is_allowed(place)) == (
        (3, 3),
        (),
        False,
    )
    assert place.source == ""


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("at()", "at"),
        ("here.at()", "at"),
        ("print(  here.at( 1 ))", "at"),
        ("here[1]", "[]"),
        ("here + 1", ""),
        ("é = 'ü' + str(here.at('ö'))", "at"),
    ],
)
@pytest.mark.skipif("sys.version_info < (3, 11)", reason="instructions have no columns")
def test_what_a_line_calls_is_known_by_its_instruction(line, name, tmp_path):
    found = []

    class Here:
        def at(self, *_):
            found.append(callers.spot(inspect.currentframe().f_back).called)

        __call__ = __getitem__ = __add__ = at

    here = Here()
    here.at = here.at
    file = tmp_path / "main.py"
    file.write_text(line, encoding="utf-8")
    exec(compile(line, file, "exec"), {"here": here, "at": here.at})
    assert found == [name]


def test_lines_of_libraries_of_ours_and_of_generated_code_are_not_the_users(tmp_path):
    assert callers.is_users(__file__)
    assert callers.is_users(str(tmp_path / "main.py"))
    theirs = pytest.__file__, textwrap.__file__, callers.__file__, find("numpy").adapter.__file__
    for file in (*theirs, "<string>", "<frozen importlib>"):
        assert not callers.is_users(file)
    assert callers.is_users("<stdin>")
