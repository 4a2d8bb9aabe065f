"""``--xdevice-exclude``: tests that are expected to fail, until one no longer does."""

import pytest

from xdevice.testing.exclusions import read

pytest_plugins = ["pytester"]

CODE = """
    import pytest
    @pytest.mark.parametrize("n", [1, 2, 3])
    def test_numbers(n): assert n > 2
    class TestIt:
        def test_failing(self): assert 0
        def test_other(self): assert 0
    def test_passing(): pass
    def test_hanging():
        import os
        os._exit(3)
    @pytest.mark.skip
    def test_skipped(): pass
"""
FILE = """\
# a comment
test_it.py::test_numbers[1]   # too small
test_it.py::test_numbers[[2]]
test_it.py::TestIt
test_it.py::test_skipped
skip test_it.py::test_hanging # os._exit
"""


@pytest.fixture
def excluding(run, pytester):
    def excluding(text, *options, code=CODE):
        (pytester.path / "exclude.txt").write_text(text, encoding="utf-8")
        return run(code, "--xdevice-exclude=exclude.txt", *options)

    return excluding


def test_a_line_has_a_pattern_and_a_reason():
    entries = read("# all\n\na::b[#1]  # why # really\nskip c*\n  d  #\n")
    assert [tuple(entry) for entry in entries] == [
        (3, "a::b[#1]", "why # really", True),
        (4, "c*", "", False),
        (5, "d", "", True),
    ]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a.py::b", ["a.py::b", "a.py::b[1]"], ["a.py::bc", "a.py", "x/a.py::b"]),
        ("a.py", ["a.py::b", "a.py::B::c[x]"], ["aa.py::b", "axpy::b"]),
        ("*::b[torch*]", ["a.py::b[torch]", "a.py::b[torch-gpu:1]"], ["a.py::b[jax]"]),
        ("a.py::b[?]", ["a.py::b[1]"], ["a.py::b[12]", "a.py::b"]),
    ],
)
def test_an_id_matches_its_parameters_and_wildcards(pattern, matching, others):
    (entry,) = read(pattern)
    assert all(entry.matches(nodeid) for nodeid in matching)
    assert not any(entry.matches(nodeid) for nodeid in others)


def test_excluded_tests_are_expected_to_fail(excluding, workers):
    text = FILE.replace("[[2]]", "[2]")
    result = excluding(text, *workers, "-rx")
    result.assert_outcomes(passed=2, xfailed=5, skipped=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines_random(
        ["XFAIL test_it.py::test_numbers[[]1] - exclude.txt:2: too small*"]
    )
    result.stdout.no_fnmatch_line("*is unnecessary*")


UNNECESSARY = {
    "test_it.py::test_passing": "test_it.py::test_passing passes",
    "test_it.py::test_numbers[3]": "test_it.py::test_numbers[[]3] passes",
    "test_it.py::test_nothing": "test_it.py::test_nothing is not a test",
    "test_it.py::test_nothing[torch]": "test_it.py::test_nothing[[]torch] is not a test",
    "test_*.py::test_pass*": "test_[*].py::test_pass[*] passes",
    "nowhere*": "nowhere[*] is not a test",
}


def test_unnecessary_lines_fail_the_run(excluding, workers):
    text = FILE.replace("[[2]]", "[2]") + "\n".join(UNNECESSARY)
    result = excluding(text, *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            f"xdevice: exclude.txt:{number} is unnecessary: {problem}; remove it"
            for number, problem in enumerate(UNNECESSARY.values(), 7)
        ]
    )


NECESSARY = {
    "test_it.py::test_numbers": (),  # two of three fail
    "elsewhere/test_other.py::test_it": (),
    "test_it.py::test_numbers[jax]": ("-k", "test_passing"),
    "test_it.py::TestIt::test_gone": ("test_it.py::test_passing",),
    "test_it.py::TestIt": ("-k", "test_passing"),
}


@pytest.mark.parametrize("line", NECESSARY)
def test_a_run_judges_only_what_it_has_seen(excluding, line):
    code = CODE.replace("assert 0", "pass").replace("os._exit(3)", "pass")
    result = excluding(line, *NECESSARY[line], code=code)
    result.stdout.no_fnmatch_line("*is unnecessary*")


def test_the_file_can_be_written(excluding, pytester, workers):
    text = "# why\ntest_it.py::test_passing\ntest_it.py::test_numbers[1]\n"
    code = CODE.replace("os._exit(3)", "pass")
    result = excluding(text, "--xdevice-update-exclude", *workers, code=code)
    result.stdout.fnmatch_lines(["xdevice: exclude.txt: 3 lines added, 1 removed"])
    lines = (pytester.path / "exclude.txt").read_text().splitlines()
    assert lines[:2] == ["# why", "test_it.py::test_numbers[1]"]
    assert sorted(lines[2:]) == [
        "test_it.py::TestIt::test_failing",
        "test_it.py::TestIt::test_other",
        "test_it.py::test_numbers[2]",
    ]
    assert excluding("\ufeff" + "\n".join(lines), code=code).ret == 0  # as some editors write it


def test_a_missing_file_is_a_usage_error(run):
    for options, words in {
        ("--xdevice-exclude=nowhere.txt",): "*--xdevice-exclude=nowhere.txt: No such file *",
        ("--xdevice-update-exclude",): "*--xdevice-update-exclude needs --xdevice-exclude=FILE",
    }.items():
        result = run("def test_it(): pass", *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([words])
