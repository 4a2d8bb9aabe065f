"""The contract suite as something to inherit: nothing is lost in it, and what is missing is said."""

import re

from xdevice.testing import Native, contract

pytest_plugins = ["pytester"]

PARTS = [part for part in contract.Suite.__bases__ if part is not contract.Promises]
WORDS = """
    import pages
    class Words:
        def ones(self): return pages.Array([[1.0] * 3] * 2)
"""


def promises(part):
    return {name for name in vars(part) if name.startswith("test_")}


def test_every_promise_is_in_the_suite_once():
    exported = {
        getattr(contract, name)
        for name in contract.__all__
        if name not in ("Suite", "Promises", "needs")
    }
    assert set(PARTS) == exported
    assert sum(len(promises(part)) for part in PARTS) == len(
        {name for part in PARTS for name in promises(part)}
    )
    assert all(promises(part) for part in PARTS)


def test_every_need_is_known():
    from xdevice.contract import CAPABILITIES

    words = {name for name in vars(Native) if not name.startswith("_")}
    known = (
        {"cpu"}
        | words
        | {
            f"{capability}.{function}"
            for capability, functions in CAPABILITIES.items()
            for function in functions
        }
    )
    needs = {
        need
        for part in PARTS
        for name in promises(part)
        for need in getattr(vars(part)[name], "xdevice_needs", ())
    }
    assert needs
    needs = {need for need in needs if not need.startswith("dtype.")}  # the adapter knows dtypes
    assert needs - {"creation.{name}"} <= known


def test_one_word_is_enough(run):
    code = (
        WORDS
        + """
    from xdevice.testing import contract
    class TestPages(contract.Exchange, contract.Models):
        backend, native = "pages", Words()
    """
    )
    result = run(code)
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] > 5
    assert result.parseoutcomes()["deselected"] >= len(promises(contract.Models))


def test_without_native_it_says_what_to_set(run):
    code = """
    from xdevice.testing import contract
    class TestPages(contract.Exchange):
        backend = "pages"
    """
    result = run(code, "-k", "host_values")
    result.stdout.fnmatch_lines(
        ["*TestPages.native is None; set it to the functions of xdevice.testing.Native"]
    )
    assert result.ret == 1


def test_a_broken_promise_shows_its_values(run):
    code = (
        WORDS.replace("1.0", "2.0")
        + """
    from xdevice.testing import contract
    class TestPages(contract.Exchange):
        backend, native = "pages", Words()
    """
    )
    result = run(code, "-k", "host_values")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * assert [[]2.0, *"])


WAIVING = (
    WORDS
    + """
    from xdevice.testing import contract
    class TestPages(contract.Exchange):
        backend, native = "pages", Words()
        waived = {"%s": "pages are of paper"}
"""
)


def test_a_waived_promise_is_told(run):
    result = run(WAIVING % "test_to_numpy_returns_host_values")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["xdevice: TestPages waives test_to_numpy_returns_host_values: pages are of paper"]
    )
    assert result.parseoutcomes()["deselected"] >= 1


def test_only_a_promise_can_be_waived(run):
    result = run(WAIVING % "test_no_such_promise")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["*TestPages.waived names test_no_such_promise, which is not a promise; *"]
    )


RAW = """
    import numpy
    import xdevice.backends.numpy.maths as maths
    from xdevice.testing import contract

    def total(a, axis=None): return numpy.add.reduce(a, axis, dtype=a.dtype)

    maths.namespace = lambda: vars(numpy) | {"sum": total, "sort": lambda a: numpy.sort(a)}

    class TestRaw(contract.Standard):
        backend = "numpy"
        class native:
            def ones(): return numpy.ones((2, 3))
"""


def test_a_bare_module_breaks_promises(run):
    """Its functions lack the standard's keywords, and add 8-bit integers to 8-bit integers."""
    result = run(RAW, "-k", "sum or sort or exp or argmax", "--tb=no", "-rf")
    broken = re.findall(
        r"^FAILED .*standard_says\[numpy-(\w+)\]", result.stdout.str(), re.MULTILINE
    )
    assert broken == ["argsort", "sort", "sum"]
    assert result.parseoutcomes()["passed"] >= 4
