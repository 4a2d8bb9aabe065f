"""Virtual GPUs as far as the core decides: who gets them and when, and what is an error."""

import textwrap

import pytest

SHOW = textwrap.dedent("""
    def show(call):
        try: print(call())
        except xdevice.XDeviceError as error: print(type(error).__name__ + ":", error)
""")


def test_the_chosen_framework_gets_them_at_once_and_they_are_said_to_be_virtual(run):
    out = run("""
        xdevice.use("toy")
        print(xdevice.virtual_gpus(2))
        print(xdevice.count("gpu"), xdevice.try_all_gpus(), str(xdevice.gpu(1)))
        print(xdevice.native("gpu:1"), "|", *(xdevice.properties(d)["virtual"] for d in ("gpu:1", "cpu")))
    """).splitlines()
    both = "[<virtual Device('gpu:0')>, <virtual Device('gpu:1')>]"
    assert out == ["enabled 2 False", both, f"2 {both} gpu:1", "toy-gpu1 of 2 | True False"]


def test_another_framework_gets_them_when_it_is_first_used(run):
    out = run("""
        print(xdevice.virtual_gpus(3)[2])
        import sys
        print("xdevice_toy" in sys.modules, repr(xdevice.gpu(0)))
        with xdevice.using("toy"):
            print(xdevice.count("gpu"))
    """)
    assert out.splitlines() == ["gpu:2", "False <virtual Device('gpu:0')>", "enabled 3 False", "3"]


def test_one_that_has_been_used_before_gets_them_when_it_is_next_used(run):
    out = run("""
        with xdevice.using("toy"):
            print(xdevice.count("gpu"), repr(xdevice.gpu(0)))
        xdevice.virtual_gpus(2)
        with xdevice.using("toy"):
            print(xdevice.count("gpu"), xdevice.native("gpu:0"))
    """)
    assert out.splitlines() == ["0 Device('gpu:0')", "enabled 2 False", "2 toy-gpu0 of 2"]


def test_the_environment_asks_for_them_too(run):
    code = "xdevice.use('toy'); print(xdevice.count('gpu'), xdevice.virtual_gpus(2))"
    out = run(code, XDEVICE_VIRTUAL_GPUS="2")
    assert out.splitlines()[:2] == ["enabled 2 False", "2 [<virtual Device('gpu:0')>, <virtual Device('gpu:1')>]"]


def test_they_stand_in_where_the_call_or_the_environment_says_so_and_only_from_the_start(run):
    out = run("xdevice.use('toy'); print(xdevice.virtual_gpus(2, stand_in=True)[1])").splitlines()
    assert out == ["enabled 2 False stand-in", "gpu:1"]
    code = "xdevice.use('toy'); print(xdevice.count('gpu'), xdevice.virtual_gpus(2, stand_in=True)[1])"
    assert run(code, XDEVICE_VIRTUAL_GPUS="2:stand-in,force").splitlines() == ["enabled 2 True stand-in", "2 gpu:1"]
    out = run(
        SHOW + "xdevice.use('toy'); xdevice.virtual_gpus(2); show(lambda: xdevice.virtual_gpus(2, stand_in=True))"
    )
    assert out.endswith("virtual GPUs that do not stand in; start again with stand_in=True first")


def test_what_follows_the_number_in_the_environment_is_checked(run):
    out = run(SHOW + "xdevice.use('toy'); show(xdevice.count)", XDEVICE_VIRTUAL_GPUS="2:standin")
    assert out == (
        "ArgumentError: XDEVICE_VIRTUAL_GPUS=2:standin has 'standin' after the number; "
        "write XDEVICE_VIRTUAL_GPUS=2 or XDEVICE_VIRTUAL_GPUS=2:stand-in"
    )


@pytest.mark.parametrize("nothing", ["", "0"])
def test_the_environment_may_ask_for_none(run, nothing):
    assert run("xdevice.use('toy'); print(xdevice.count('gpu'))", XDEVICE_VIRTUAL_GPUS=nothing) == "0"


@pytest.mark.parametrize("given", ["two", "-1", "2.0", "65"])
def test_nonsense_in_the_environment_is_an_error_that_shows_it(run, given):
    out = run(SHOW + "xdevice.use('toy'); show(xdevice.count)", XDEVICE_VIRTUAL_GPUS=given)
    assert out.startswith(f"ArgumentError: XDEVICE_VIRTUAL_GPUS={given} is ") and out.endswith("from 1 to 64")


def test_another_number_is_an_error_that_says_which_there_is(run):
    out = run(SHOW + "xdevice.use('toy'); xdevice.virtual_gpus(2); show(lambda: xdevice.virtual_gpus(3))")
    assert out.splitlines()[1].startswith("VirtualDeviceError: virtual_gpus(3) comes after virtual_gpus(2)")
    out = run(SHOW + "xdevice.use('toy'); show(lambda: xdevice.virtual_gpus(3))", XDEVICE_VIRTUAL_GPUS="2")
    assert out.startswith("VirtualDeviceError: virtual_gpus(3) comes after XDEVICE_VIRTUAL_GPUS=2")


@pytest.mark.parametrize("n", [0, -1, 65, True, 2.0, "2", None])
def test_a_number_that_cannot_be_meant_is_an_error(run, n):
    out = run(SHOW + f"xdevice.use('toy'); show(lambda: xdevice.virtual_gpus({n!r})); print(xdevice.count())")
    error, count = out.splitlines()
    assert f"virtual_gpus({n!r})" in error and error.endswith("give an integer from 1 to 64") and count == "0"
    assert error.startswith("ArgumentError" if type(n) is int else "ArgumentTypeError")


def test_what_the_framework_refuses_leaves_nothing_asked_for(run):
    out = run(
        SHOW
        + textwrap.dedent("""
        xdevice.use("toy")
        show(lambda: xdevice.virtual_gpus(2))
        print(xdevice.count(), repr(xdevice.gpu(0)))
        show(lambda: xdevice.virtual_gpus(3, force=True))
        """),
        REAL="1",
    ).splitlines()
    assert out[:3] == ["VirtualDeviceError: there is a real toy", "0 Device('gpu:0')", "enabled 3 True"]


def test_asked_for_by_the_environment_and_too_late_is_an_error_each_time(run):
    out = run(
        SHOW + "xdevice.use('toy'); show(xdevice.count); show(xdevice.try_gpu)", XDEVICE_VIRTUAL_GPUS="2", TOO_LATE="1"
    )
    assert out.splitlines() == ["VirtualDeviceError: the toy has been played with"] * 2


def test_a_device_that_is_not_there_is_told_with_those_that_are_and_that_they_are_virtual(run):
    out = run(SHOW + "xdevice.use('toy'); xdevice.virtual_gpus(2); show(lambda: xdevice.native('gpu:5'))")
    assert "gpu:5 does not exist under toy, which sees cpu:0, virtual gpu:0, virtual gpu:1" in out


def test_their_own_word_is_a_spelling_once_they_are_there_and_not_before(run):
    out = run("""
        print(xdevice.Device("vgpu:1"))
        xdevice.use("toy")
        xdevice.virtual_gpus(2)
        print(xdevice.Device("vgpu:1"))
    """)
    assert out.splitlines() == ["vgpu:1", "enabled 2 False", "gpu:1"]


def test_strict_watches_each_framework_once_and_only_while_a_block_is_open(run):
    out = run("""
        import toy
        with xdevice.strict():
            with xdevice.strict():
                print("inside")
            print("still")
        print("out")
    """)
    assert out.splitlines() == ["watching", "inside", "still", "not watching", "out"]


def test_strict_watches_a_framework_that_comes_later(run):
    out = run("""
        with xdevice.strict():
            print("nothing yet")
            with xdevice.using("toy"):
                xdevice.count()
    """)
    assert out.splitlines() == ["nothing yet", "watching", "not watching"]


def test_strict_decorates_functions_and_coroutines_and_keeps_their_names(run):
    out = run("""
        import asyncio, toy
        @xdevice.strict()
        def plain(x):
            "its text"
            return x + 1
        @xdevice.strict()
        async def waiting(x): return x + 2
        print(plain(1), plain.__name__, plain.__doc__)
        print(asyncio.run(waiting(1)))
        try: xdevice.strict()(i for i in ())
        except xdevice.ArgumentTypeError as error: print(error)
    """).splitlines()
    assert out[:3] == ["watching", "not watching", "2 plain its text"]
    assert out[3:6] == ["watching", "not watching", "3"] and "decorate a function" in out[6]


def test_strict_is_left_by_an_error_too(run):
    out = run("""
        import toy
        try:
            with xdevice.strict():
                raise KeyError
        except KeyError:
            print("raised")
    """)
    assert out.splitlines() == ["watching", "not watching", "raised"]


def test_strict_is_refused_where_a_framework_cannot_be_watched_for_it_has_no_devices_to_be_had(run):
    out = run(
        SHOW
        + textwrap.dedent("""
        import toy
        def open():
            with xdevice.strict(): return "open"
        show(open)
        """),
        XDEVICE_VIRTUAL_GPUS="2",
        TOO_LATE="1",
    )
    assert out == "VirtualDeviceError: the toy has been played with"
