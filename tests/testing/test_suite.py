"""The contract suite as something to inherit: nothing is lost in it, and what is missing is said."""

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


def test_every_promise_of_every_part_is_in_the_suite_and_none_hides_another():
    exported = {getattr(contract, name) for name in contract.__all__ if name not in ("Suite", "Promises", "needs")}
    assert set(PARTS) == exported
    assert sum(len(promises(part)) for part in PARTS) == len({name for part in PARTS for name in promises(part)})
    assert all(promises(part) for part in PARTS)


def test_every_need_is_a_word_or_a_function_of_a_capability():
    from xdevice.contract import CAPABILITIES

    words = {name for name in vars(Native) if not name.startswith("_")}
    known = (
        {"cpu"}
        | words
        | {f"{capability}.{function}" for capability, functions in CAPABILITIES.items() for function in functions}
    )
    needs = {
        need for part in PARTS for name in promises(part) for need in getattr(vars(part)[name], "xdevice_needs", ())
    }
    assert needs
    assert {need for need in needs if need != "creation.{name}"} <= known


def test_one_word_is_enough_and_promises_that_need_others_are_not_collected(run):
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


def test_a_suite_without_native_is_an_error_that_says_what_to_set(run):
    code = """
    from xdevice.testing import contract
    class TestPages(contract.Exchange):
        backend = "pages"
    """
    result = run(code, "-k", "host_values")
    result.stdout.fnmatch_lines(["*TestPages.native is None; set it to the functions of xdevice.testing.Native"])
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
