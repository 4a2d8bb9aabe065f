"""The tool for other projects' tests, on a small project of our own that has every kind of them, in made/.

Tests are started as a stranger does: the project is a git repository of its own, and the rows are in a file.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomllib

HERE = Path(__file__).parent
HEAD = (HERE / "rows.toml").read_text(encoding="utf-8").partition("\n[")[0]
ROW = """
[{name}]
repository = "made/project"
tag = "v1"
install = ["torch"]
tests = ["{tests}"]
arguments = ["-o", "python_files=check_*.py"]
{more}
"""
ROWS = {
    "checks": 'scratch = ["barrier"]\nenvironment = { FOLDER = "SCRATCH" }\nby_running = true\n'
    'fails_on_gpus = { "one operand is on the CPU" = "cuda_refuses_too .*on the same device" }',
    "more": "all = true",
    "refused": "all = true",
    "waits": "all = true",
}
GPUS = "checks/check_gpus.py::test_"


@pytest.fixture(scope="module")
def place(tmp_path_factory, compiler):
    """A folder with the project's repository, which has two versions, and the rows.

    Virtual GPUs that stand in need their plug-in, and so a compiler.
    """
    place = tmp_path_factory.mktemp("foreign")
    project = place / "mirror/made/project"
    shutil.copytree(HERE / "made", project)
    author = ["-c", "user.name=made", "-c", "user.email=made@localhost"]

    def git(*words):
        subprocess.run(
            ["git", "-C", str(project), *author, *words], check=True, capture_output=True
        )

    git("init", "--quiet", "-b", "main")
    for tag in ("v1", "v2"):
        if tag == "v2":
            (project / "more/check_new.py").write_text("def test_of_the_new_version():\n    pass\n")
        git("add", ".")
        git("commit", "--quiet", "-m", tag)
        git("tag", tag)
    rows = [ROW.format(name=name, tests=name, more=more) for name, more in ROWS.items()]
    (place / "rows.toml").write_text("\n".join([HEAD, *rows]))
    return place


def command(place, row, *options, rows="rows.toml", mirror="mirror"):
    places = ["--rows", place / rows, "--checkouts", place / "checkouts", "--kept", place / "kept"]
    mirror = (place / mirror).as_uri()
    return list(
        map(str, [sys.executable, HERE / "run.py", row, *places, "--mirror", mirror, *options])
    )


def run(place, row, *options, **others):
    """How the tool ended, and what it says of each test."""
    causes = place / f"{row}.json"
    causes.unlink(missing_ok=True)
    done = subprocess.run(
        command(place, row, "--json", causes, *options, **others),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done, json.loads(causes.read_text()) if causes.exists() else {}


@pytest.fixture(scope="module")
def checks(place):
    return run(place, "checks")


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("test", "cause"),
    [
        ("skipped_by_a_mark", "passed"),
        ("skipped_by_a_fixture", "passed"),
        ("skipped_by_its_body", "passed"),
        ("that_lacks_a_package", "package"),
        ("whose_library_names_the_package", "package"),
        ("that_blames_cuda", "ours"),
        ("that_fails_anywhere[cuda]", "CPU"),
        ("that_fails", "ours"),
        ("that_cuda_refuses_too", "CUDA"),
        ("that_ends_its_process", "ours"),
        ("after_one_that_ends_its_process", "passed"),
        ("that_finds_the_folder_it_is_given", "passed"),
        ("that_skips_itself_on_gpus", "skipped"),
    ],
)
def test_each_test_has_its_cause(checks, test, cause):
    assert checks[1][GPUS + test]["cause"] == cause


@pytest.mark.weekly
def test_a_test_of_the_cpu_is_not_one_of_gpus(checks):
    assert not {f"{GPUS}of_the_cpu", f"{GPUS}that_fails_anywhere[cpu]"} & set(checks[1])


@pytest.mark.weekly
def test_tests_that_were_not_run_are_counted(checks):
    done, causes = checks
    lost = [test for test, result in causes.items() if result["cause"] == "lost"]
    assert [test.partition("[")[0] for test in lost] == [f"{GPUS}whose_id_changes"]
    assert "1 were not run" in done.stdout


@pytest.mark.weekly
def test_ids_with_random_numbers_are_found_again(checks):
    drawn = [result for test, result in checks[1].items() if "whose_id_is_drawn" in test]
    assert [result["cause"] for result in drawn] == ["passed"] * 3


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("file", "cause"), [("package", "package"), ("import", "ours"), ("whole", "skipped")]
)
def test_a_file_that_has_no_tests_is_counted(checks, file, cause):
    assert checks[1][f"checks/check_{file}.py"]["cause"] == cause


@pytest.mark.weekly
def test_the_result_says_what_is_missing_and_why_tests_skip(checks):
    done, _ = checks
    assert done.returncode == 1
    assert "fail on GPUs too: 1 one operand is on the CPU" in done.stdout
    assert "lack a package: 3 a_package_that_nobody_has" in done.stdout
    assert "skipped: 1 Skipped: this GPU is too small" in done.stdout


@pytest.mark.weekly
def test_what_the_pages_say_to_be_missing_is_not_ours(place):
    done, causes = run(place, "refused")
    assert len(causes) > 15
    assert {
        test: result["why"] for test, result in causes.items() if result["cause"] != "cannot"
    } == {}
    assert done.returncode == 1  # none has passed


@pytest.mark.weekly
def test_another_row_of_a_repository_has_its_folder_and_another_tag_its_tests(place):
    done, causes = run(place, "more")
    assert (done.returncode, list(causes)) == (0, ["more/check_more.py::test_of_another_folder"])
    assert len(run(place, "more", "--tag", "v2")[1]) == 2
    assert list(run(place, "more")[1]) == list(causes)


@pytest.mark.weekly
def test_a_run_that_was_stopped_goes_on(place, monkeypatch):
    go_on = place / "go-on"
    monkeypatch.setenv("GO_ON", str(go_on))
    kept = place / "kept/waits@v1/run-gpus.jsonl"
    with subprocess.Popen(command(place, "waits")) as process:
        while process.poll() is None and not (
            kept.exists() and "::test_second" in kept.read_text()
        ):
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
    assert process.returncode
    go_on.touch()
    done, causes = run(place, "waits")
    assert done.returncode == 0
    assert [result["cause"] for result in causes.values()] == ["passed", "passed"]
    lines = map(json.loads, kept.read_text().splitlines())
    started = [line["test"] for line in lines if line.get("outcome") == "started"]
    assert [test.partition("::")[2] for test in started] == [
        "test_first",
        "test_second",
        "test_second",
    ]


@pytest.mark.parametrize(
    ("others", "options", "words"),
    [
        ({"mirror": "nowhere"}, ["--tag", "v3"], "cloning file://"),
        ({}, ["--tag", "v3"], "Remote branch v3 not found"),
        ({"rows": "unknown.toml"}, [], "the head does not explain colour, which odd has"),
    ],
)
def test_what_cannot_be_run_ends_in_a_sentence(place, others, options, words):
    odd = ROW.format(name="odd", tests="more", more='colour = "red"')
    (place / "unknown.toml").write_text(f"{HEAD}\n{odd}")
    done, causes = run(place, "more", *options, **others)
    assert (done.returncode, causes, len(done.stderr.splitlines())) == (1, {}, 1)
    assert words in done.stderr


def test_the_rows_have_keys_that_their_head_explains():
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), "--list"], capture_output=True, text=True
    )
    rows = tomllib.loads((HERE / "rows.toml").read_text(encoding="utf-8"))
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == list(rows), done.stderr


def test_the_page_has_each_row_once_with_its_result_or_among_those_without():
    page = (HERE.parents[1] / "validation/foreign/README.md").read_text(encoding="utf-8")
    rows = tomllib.loads((HERE / "rows.toml").read_text(encoding="utf-8"))
    run = re.findall(r"^\| ([\w-]+) \| \S+/", page, re.MULTILINE)
    not_run = re.search(r"^Rows without a result: (.*?)\.$", page, re.MULTILINE | re.DOTALL)[1]
    assert sorted(run + re.findall(r"`([\w-]+)`", not_run)) == sorted(rows)
