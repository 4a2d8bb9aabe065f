"""Virtual GPUs as far as the core decides: who gets them and when, and what is an error."""

import textwrap
from importlib.util import find_spec

import pytest

from xdevice.virtual.models import MODELS

SHOW = textwrap.dedent("""
    def show(call):
        try: print(call())
        except xdevice.XDeviceError as error: print(type(error).__name__ + ":", error)
""")


def test_the_chosen_framework_gets_them_now(run):
    out = run("""
        xdevice.use("toy")
        print(xdevice.virtual_gpus(2))
        print(xdevice.count("gpu"), xdevice.try_all_gpus(), str(xdevice.gpu(1)))
        print(xdevice.native("gpu:1"), "|", *(xdevice.properties(d)["virtual"] for d in ("gpu:1", "cpu")))
    """).splitlines()
    both = "[Device('gpu:0'), Device('gpu:1')]"
    assert out == ["enabled 2 False", both, f"2 {both} gpu:1", "toy-gpu1 of 2 | True False"]


def test_another_gets_them_at_first_use(run):
    out = run("""
        print(xdevice.virtual_gpus(3)[2])
        import sys
        print("xdevice_toy" in sys.modules, repr(xdevice.gpu(0)))
        with xdevice.using("toy"):
            print(xdevice.count("gpu"))
    """)
    assert out.splitlines() == ["gpu:2", "False Device('gpu:0')", "enabled 3 False", "3"]


def test_one_in_use_gets_them_at_next_use(run):
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
    assert out.splitlines()[:2] == [
        "enabled 2 False",
        "2 [Device('gpu:0'), Device('gpu:1')]",
    ]


def test_standing_in_is_from_the_start(run):
    out = run("xdevice.use('toy'); print(xdevice.virtual_gpus(2, stand_in=True)[1])").splitlines()
    assert out == ["enabled 2 False stand-in", "gpu:1"]
    code = (
        "xdevice.use('toy'); print(xdevice.count('gpu'), xdevice.virtual_gpus(2, stand_in=True)[1])"
    )
    assert run(code, XDEVICE_VIRTUAL_GPUS="2:stand-in,force").splitlines() == [
        "enabled 2 True stand-in",
        "2 gpu:1",
    ]
    out = run(
        SHOW
        + "xdevice.use('toy'); xdevice.virtual_gpus(2); show(lambda: xdevice.virtual_gpus(2, stand_in=True))"
    )
    assert out.endswith("virtual GPUs that do not stand in; start again with stand_in=True first")


def test_leniency_comes_from_the_environment_and_reaches_child_processes(run):
    code = """
        import os
        from xdevice.virtual import asked
        print(asked().lenient, os.environ.get("XDEVICE_VIRTUAL_GPUS"))
        xdevice.use("toy")
        xdevice.virtual_gpus(2, stand_in=True)
        print(asked().lenient, os.environ["XDEVICE_VIRTUAL_GPUS"])
    """
    asked = "2:stand-in,lenient"
    expected = [f"True {asked}", "enabled 2 False stand-in", f"True {asked}"]
    assert run(code, XDEVICE_VIRTUAL_GPUS=asked).splitlines() == expected
    assert run(code).splitlines() == ["False None", "enabled 2 False stand-in", "False 2:stand-in"]


def test_the_model_is_checked_and_reaches_child_processes(run):
    code = """
        import os
        from xdevice.virtual import asked, models
        xdevice.use("toy")
        xdevice.virtual_gpus(2, stand_in=True, model="t4")
        print(asked().model, models.memory_of(asked()) >> 20, os.environ["XDEVICE_VIRTUAL_GPUS"])
    """
    asked = "2:stand-in,model=t4"
    assert run(code).splitlines() == ["enabled 2 False stand-in", f"t4 15102 {asked}"]
    wrong = SHOW + "xdevice.use('toy'); show({})"
    unknown = "lambda: xdevice.virtual_gpus(2, stand_in=True, model='rtx4080')"
    without = "lambda: xdevice.virtual_gpus(2, model='t4')"
    for call, environment, words in (
        (
            unknown,
            "",
            "virtual_gpus(2) has no known model of a GPU, 'rtx4080'; did you mean 'rtx4090'?",
        ),
        (
            "xdevice.count",
            "2:stand-in,model=x",
            "no known model of a GPU, 'x'; write one of " + ", ".join(MODELS),
        ),
        (without, "", "does not stand in; write virtual_gpus(2, stand_in=True, model='t4')"),
        (
            "xdevice.count",
            "2:model=t4",
            f"a model without 'stand-in'; write XDEVICE_VIRTUAL_GPUS={asked}",
        ),
    ):
        out = run(wrong.format(call), XDEVICE_VIRTUAL_GPUS=environment)
        assert out.startswith("ArgumentError: ")
        assert out.endswith(words)


@pytest.mark.parametrize("memory", ["4", "4 KB", "4 gigs", "-1GiB"])
def test_a_size_that_is_no_memory_of_a_gpu_is_an_error(run, memory):
    code = """
        try:
            xdevice.virtual_gpus(2)
        except xdevice.ArgumentError as error:
            print(error)
    """
    out = run(code, XDEVICE_VIRTUAL_MEMORY=memory)
    assert out.startswith(f"XDEVICE_VIRTUAL_MEMORY={memory} is not the memory of a GPU")


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("1", 1),
        ("2,0", 2),
        ("0,1,2", 3),
        ("1,3,0", 1),
        ("0,0", 0),
        ("-1", 0),
        ("", 0),
        ("GPU-1b", 0),
    ],
)
def test_cudas_variable_chooses_among_those_that_stand_in(run, value, left):
    code = f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = {value!r}; xdevice.use('toy'); print(xdevice.count('gpu'))"
    enabled = [f"enabled {left} False stand-in"] if left else []
    assert run(code, XDEVICE_VIRTUAL_GPUS="3:stand-in").splitlines() == [*enabled, str(left)]
    assert run(code, XDEVICE_VIRTUAL_GPUS="3").splitlines() == ["enabled 3 False", "3"]


def test_cudas_variable_is_about_real_gpus_before_they_are_asked_for(run):
    code = """
        import contextlib, io, os
        xdevice.use("toy")
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            xdevice.virtual_gpus(2, stand_in=True)
        print(said.getvalue().splitlines()[0], "CUDA_VISIBLE_DEVICES" in os.environ)
    """
    said = (
        "xdevice: CUDA_VISIBLE_DEVICES='5' was set for the machine's GPUs, which are real, and does not choose among "
        "those that stand in; set it after they are asked for False"
    )
    assert run(code, CUDA_VISIBLE_DEVICES="5").splitlines() == ["enabled 2 False stand-in", said]


@pytest.mark.parametrize(("words", "wrong", "hint"), [
    ("standin", "standin", "did you mean 'stand-in'?"),
    ("stand-in,lenent", "lenent", "did you mean 'lenient'?"),
    ("xyz", "xyz", "write XDEVICE_VIRTUAL_GPUS=2 or XDEVICE_VIRTUAL_GPUS=2:stand-in"),
    ("lenient", "lenient", "write XDEVICE_VIRTUAL_GPUS=2 or XDEVICE_VIRTUAL_GPUS=2:stand-in,lenient"),
    ("races", "races", "write XDEVICE_VIRTUAL_GPUS=2 or XDEVICE_VIRTUAL_GPUS=2:stand-in,races"),
])  # fmt: skip
def test_the_environments_suffix_is_checked(run, words, wrong, hint):
    out = run(SHOW + "xdevice.use('toy'); show(xdevice.count)", XDEVICE_VIRTUAL_GPUS=f"2:{words}")
    assert (
        out
        == f"ArgumentError: XDEVICE_VIRTUAL_GPUS=2:{words} has {wrong!r} after the number; {hint}"
    )


@pytest.mark.parametrize("nothing", ["", "0"])
def test_the_environment_may_ask_for_none(run, nothing):
    assert (
        run("xdevice.use('toy'); print(xdevice.count('gpu'))", XDEVICE_VIRTUAL_GPUS=nothing) == "0"
    )


@pytest.mark.parametrize("given", ["two", "-1", "2.0", "65"])
def test_nonsense_in_the_environment_is_shown(run, given):
    out = run(SHOW + "xdevice.use('toy'); show(xdevice.count)", XDEVICE_VIRTUAL_GPUS=given)
    assert out.startswith(f"ArgumentError: XDEVICE_VIRTUAL_GPUS={given} is ")
    assert out.endswith("from 1 to 64")


def test_another_number_is_an_error(run):
    out = run(
        SHOW + "xdevice.use('toy'); xdevice.virtual_gpus(2); show(lambda: xdevice.virtual_gpus(3))"
    )
    assert out.splitlines()[1].startswith(
        "VirtualDeviceError: virtual_gpus(3) comes after virtual_gpus(2)"
    )
    out = run(
        SHOW + "xdevice.use('toy'); show(lambda: xdevice.virtual_gpus(3))", XDEVICE_VIRTUAL_GPUS="2"
    )
    assert out.startswith("VirtualDeviceError: virtual_gpus(3) comes after XDEVICE_VIRTUAL_GPUS=2")


@pytest.mark.parametrize("n", [0, -1, 65, True, 2.0, "2", None])
def test_an_impossible_number_is_an_error(run, n):
    out = run(
        SHOW
        + f"xdevice.use('toy'); show(lambda: xdevice.virtual_gpus({n!r})); print(xdevice.count())"
    )
    error, count = out.splitlines()
    assert f"virtual_gpus({n!r})" in error
    assert error.endswith("give an integer from 1 to 64")
    assert count == "0"
    assert error.startswith("ArgumentError" if type(n) is int else "ArgumentTypeError")


def test_a_refusal_leaves_nothing_asked_for(run):
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
    assert out[:3] == [
        "VirtualDeviceError: there is a real toy",
        "0 Device('gpu:0')",
        "enabled 3 True",
    ]


def test_too_late_is_an_error_each_time(run):
    out = run(
        SHOW + "xdevice.use('toy'); show(xdevice.count); show(xdevice.try_gpu)",
        XDEVICE_VIRTUAL_GPUS="2",
        TOO_LATE="1",
    )
    assert out.splitlines() == ["VirtualDeviceError: the toy has been played with"] * 2


def test_a_missing_device_lists_the_virtual(run):
    out = run(
        SHOW + "xdevice.use('toy'); xdevice.virtual_gpus(2); show(lambda: xdevice.native('gpu:5'))"
    )
    assert "gpu:5 does not exist under toy, which sees cpu:0, virtual gpu:0, virtual gpu:1" in out


@pytest.mark.skipif(
    find_spec("numpy") is None,
    reason="needs a framework without virtual GPUs; NumPy is not installed",
)
def test_a_framework_chosen_later_that_cannot_have_them_says_why_there_are_none(run):
    asked = "xdevice.virtual_gpus(2); xdevice.use('numpy'); show(lambda: xdevice.ones(3, device='gpu:0'))"
    out = run(SHOW + asked)
    assert out.startswith(
        "DeviceNotFoundError: gpu:0 does not exist under numpy, which sees cpu:0; "
    )
    assert "numpy has no virtual GPUs: its arrays are always on the CPU" in out
    assert out.endswith("choose another framework with use('torch')")
    assert "try_gpu(0)" in run(SHOW + asked.replace("xdevice.virtual_gpus(2); ", ""))


def test_strict_watches_inside_blocks_only(run):
    out = run("""
        import toy
        with xdevice.strict():
            with xdevice.strict():
                print("inside")
            print("still")
        print("out")
    """)
    assert out.splitlines() == ["watching", "inside", "still", "not watching", "out"]


def test_strict_watches_a_later_framework(run):
    out = run("""
        with xdevice.strict():
            print("nothing yet")
            with xdevice.using("toy"):
                xdevice.count()
    """)
    assert out.splitlines() == ["nothing yet", "watching", "not watching"]


def test_strict_is_a_decorator(run):
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
    assert out[3:6] == ["watching", "not watching", "3"]
    assert "decorate a function" in out[6]


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


def test_strict_is_refused_where_it_cannot_be(run):
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
