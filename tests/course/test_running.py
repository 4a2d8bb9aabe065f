"""``xdevice chapter``, the real command, on chapters of each format, under real frameworks."""

import json
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import xdevice
from xdevice.tools.cli.chapter import _tabs
from xdevice.tools.course.read import read

NAMES = xdevice.available()
ONE = NAMES[-1] if NAMES else None  # the lightest
pytestmark = pytest.mark.skipif(not NAMES, reason="no framework is installed here")


@pytest.fixture
def run(tmp_path, python):
    def run(chapter, *options, name="chapter.md"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(chapter), encoding="utf-8")
        return python("-m", "xdevice", "chapter", *options, path, cwd=tmp_path)

    return run


@pytest.fixture
def run_json(run):
    def run_json(chapter, *options, **others):
        done = run(chapter, "--json", *options, **others)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run_json


def cells(report, tab=None):
    """The cells of a tab, or of the only one."""
    if tab is None:
        (only,) = report["tabs"]
        return only["cells"]
    return next(each["cells"] for each in report["tabs"] if each["tab"] == tab)


EVERY_KIND = """
    # Kinds

    ```python
    print("printed"); 3
    ```

    ```python
    import os; In[1][:5], os.getcwd()
    ```

    ```python
    %matplotlib notebook
    import matplotlib.pyplot as plt
    plt.plot([1, 2]);
    ```

    ```python
    %matplotlib inline
    import matplotlib.pyplot as plt
    plt.plot([1, 2, 3], [2.5, 1.25, 0.5], label="loss")
    plt.show()
    ```

    ```python
    !echo from the shell
    import sys; print("warned", file=sys.stderr)
    ```

    ## Errors

    ```python
    1 / 0
    ```

    ```python
    input("name?")
    ```

    ```python
    %no_such_magic
    ```

    ```python
    raise SystemExit(3)
    ```

    ```python
    for step in range(3): print(f"\\rstep {step}", end="", flush=True)
    ```

    ```python
    for _ in range(5): print("x" * 500_000, end="", flush=True)
    ```

    ```python
    import os; os._exit(3)
    ```

    ```python
    4
    ```
"""


def test_a_cell_prints_its_value_draws_and_fails_as_in_a_notebook(run_json):
    status, report = run_json(EVERY_KIND, "--tab", ONE, "--keep-going")
    assert status == 1
    found = cells(report)
    assert [cell["state"] for cell in found] == [
        *["ok"] * 5, *["failed"] * 4, "ok", "ok", "dead", "not run"
    ]  # fmt: skip
    assert found[0]["text"] == "printed\n3"
    words = " ".join(found[1]["text"].split())  # a long path is on a line of its own
    assert words.startswith("('print', '../test_a_cell_prints")
    assert found[2]["pictures"] == 1  # nobody can click: it is drawn as inline
    assert found[3]["pictures"] == 1
    assert found[3]["curves"] == [{"label": "loss", "x": [1, 2, 3], "y": [2.5, 1.25, 0.5]}]
    assert found[4]["text"] == "from the shell"
    assert found[5]["error"] == "ZeroDivisionError: division by zero"
    assert found[5]["heading"] == "Errors"
    assert "StdinNotImplementedError" in found[6]["error"]
    assert found[7]["error"] == "UsageError: Line magic function `%no_such_magic` not found."
    assert found[8]["error"] == "SystemExit: 3"
    assert found[9]["text"] == "step 2"
    assert found[10]["text"] == "x" * 2**20 + "\n… (cut)"  # and at once: a long line took hours
    assert found[11]["error"] == "the process ended: exit 3"


@pytest.mark.weekly
def test_the_cell_that_fails_is_said(run):
    done = run("```python\n1 / 0\n```\n\n```python\nundefined\n```\n", "--tab", ONE)
    assert done.returncode == 1
    assert f"{ONE}: cell 1 failed\n  ZeroDivisionError: division by zero" in done.stdout
    assert "NameError" not in done.stdout
    assert f"chapter.md: {ONE} failed (" in done.stderr


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
        (
            "import os; os.kill(os.getpid(), 9)",
            "killed by SIGKILL, probably because the machine ran out of memory",
        ),
    ],
)
def test_how_a_process_ended_is_said(run_json, code, says):
    _, report = run_json(f"```python\n1\n```\n\n```python\n{code}\n```\n", "--tab", ONE)
    assert [cell["state"] for cell in cells(report)] == ["ok", "dead"]
    assert cells(report)[1]["error"] == f"the process ended: {says}"


def test_marks_say_which_error_is_the_lesson_and_what_is_skipped(run_json, run, tmp_path):
    chapter = """
        ```{code-cell}
        :tags: [raises-exception]
        print("before"); 1 / 0
        ```

        ```{code-cell}
        :tags: [skip-execution]
        raise SystemExit
        ```

        ```{code-cell}
        # raises-exception
        raise ValueError("no")
        ```

        ```{code-cell}
        2
        ```
    """
    status, report = run_json(chapter, "--tab", ONE, "--record")
    found = cells(report)
    assert (status, [cell["state"] for cell in found]) == (0, ["ok"] * 4)
    assert [(cell["text"], cell["error"]) for cell in found] == [
        ("before", "ZeroDivisionError: division by zero"),
        ("", ""),
        ("", "ValueError: no"),
        ("2", ""),
    ]
    changed = run(chapter.replace("1 / 0", "1 + 0"), "--tab", ONE, "--check", "--html", "page.html")
    assert (changed.returncode, "1 change since" in changed.stdout) == (1, False), changed.stdout
    assert "ValueError: no" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_chapter_runs_in_its_folder_and_changes_no_file_of_it(run_json, tmp_path):
    package = tmp_path / "course_package"
    package.mkdir()
    (package / "__init__.py").write_text("def about(): return __file__", encoding="utf-8")
    (tmp_path / ".git").mkdir()
    chapter = """
        ```python
        import os
        from course_package import about
        os.makedirs("data/new", exist_ok=True)
        for name in ("notes.txt", "data/table.csv", "data/new/other.csv"):
            open(name, "a").write("cell's")
        open("notes.txt").read(), os.path.basename(os.getcwd()), about()
        ```

        ```python
        1 / 0
        ```

        ```python
        2
        ```
    """
    folder = tmp_path / "chapter_one"
    (folder / "data").mkdir(parents=True)
    mine = [folder / "notes.txt", folder / "data" / "table.csv"]
    for file in mine:
        file.write_text("mine", encoding="utf-8")
    status, report = run_json(chapter, "--tab", ONE, name="chapter_one/first.md")
    states = [cell["state"] for cell in cells(report)]
    assert (status, states) == (1, ["ok", "failed", "not run"]), report  # it stops at an error
    about = str(package / "__init__.py")
    assert eval(cells(report)[0]["text"]) == ("minecell's", "chapter_one", about)
    assert [file.read_text(encoding="utf-8") for file in mine] == ["mine", "mine"]
    assert sorted(each.name for each in folder.rglob("*")) == [
        "data",
        "first.md",
        "notes.txt",
        "table.csv",
    ]


@pytest.mark.weekly
def test_what_a_tab_writes_is_its_own_and_a_new_folder_beside_it_is_kept(run_json, tmp_path):
    if len(NAMES) < 2:
        pytest.skip("two frameworks are needed; the environment `all` has them")
    (tmp_path / "chapter_one").mkdir()
    (tmp_path / "chapter_one" / "given.txt").write_text("given", encoding="utf-8")
    chapter = """
        ```{.python .input}
        #@tab FIRST
        open("saved", "w").close()
        ```

        ```{.python .input}
        #@tab SECOND
        import os
        os.mkdir("saved")
        ```

        ```{.python .input}
        #@tab all
        import os
        os.makedirs("../data", exist_ok=True)
        open("../data/downloaded", "w").close()
        open("given.txt").read()
        ```
    """
    chapter = chapter.replace("FIRST", NAMES[-1]).replace("SECOND", NAMES[-2])
    status, report = run_json(chapter, name="chapter_one/first.md")
    assert status == 0, report
    assert [cells(report, name)[1]["text"] for name in NAMES[-2:]] == ["'given'"] * 2
    assert not (tmp_path / "chapter_one" / "saved").exists()
    assert (tmp_path / "data" / "downloaded").is_file()


@pytest.mark.weekly
def test_a_notebook_runs_under_the_framework_that_it_imports(run_json):
    code = f"import {ONE}, xdevice\nxdevice.backend()"
    cell = {
        "cell_type": "code",
        "source": code,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    status, report = run_json(json.dumps(notebook), name="notebook.ipynb")
    assert (status, report["tabs"][0]["tab"]) == (0, ONE)
    assert cells(report)[0]["text"] == repr(ONE)


STARTS = {
    "xdevice alone": ("import xdevice", 0),
    "a tensor first": ("import xdevice; x = xdevice.zeros(2)", 0),
    "its module first": ("import xdevice; xdevice.backend().framework", 0),
    "the framework": ("import FRAMEWORK, xdevice", 0),
    "a seed of the chapter's": ("import xdevice; xdevice.seed(5); x = xdevice.zeros(2)", 5),
}


@pytest.mark.weekly
@pytest.mark.parametrize("framework", NAMES)
@pytest.mark.parametrize("start", STARTS)
def test_the_seed_is_set_before_the_first_draw_whoever_imports_the_framework(
    run_json, start, framework
):
    code, seed = STARTS[start]
    generators = (
        2 if framework == "array_api_strict" else 1
    )  # its adapter makes one of NumPy's, too
    chapter = f"""
        ```python
        {code.replace("FRAMEWORK", framework)}
        drawn = xdevice.to_numpy(xdevice.rand(3)).tolist()
        from numpy import random
        first = random.rand()
        random.default_rng()
        second = random.default_rng().random()
        xdevice.seed({seed})
        [drawn == xdevice.to_numpy(xdevice.rand(3)).tolist(), first == random.RandomState(0).rand(),
         second == random.default_rng([0, {generators}]).random()]
        ```
    """
    _, report = run_json(chapter, "--tab", framework)
    is_numpys = framework == "numpy"  # whose draws are the first ones
    assert cells(report)[0]["text"] == f"[True, {not is_numpys}, True]", report


@pytest.mark.weekly
def test_a_tab_that_runs_too_long_is_stopped_and_keeps_what_it_has(run_json):
    chapter = "```python\n1\n```\n\n```python\nprint(2); import time; time.sleep(300)\n```\n"
    status, report = run_json(chapter, "--tab", ONE, "--timeout", "40")
    assert status == 1
    assert report["tabs"][0]["status"] == "timed out"
    assert [cell["state"] for cell in cells(report)] == ["ok", "dead"]
    assert "timed out" in cells(report)[1]["error"]
    assert cells(report)[1]["text"] == "2"


@pytest.mark.weekly
def test_outputs_are_not_recorded_of_a_chapter_that_is_stopped_and_that_is_said(tmp_path):
    chapter, begun = tmp_path / "chapter.md", tmp_path / "begun"
    code = f"open({str(begun)!r}, 'w').close(); import time; time.sleep(300)"
    chapter.write_text(f"```python\n{code}\n```\n", encoding="utf-8")
    command = [sys.executable, "-m", "xdevice", "chapter", "--tab", ONE, "--record", str(chapter)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while not begun.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGINT
    assert b"chapter.outputs.json' was not written, since the chapter was stopped" in errors
    assert not (tmp_path / "chapter.outputs.json").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--tab", "rust"], "'rust' is not a tab or a framework"),
        (
            ["--backend=torch"],
            "unknown option '--backend'; did you mean",
        ),
        (["--gpus", "2", "--virtual-gpus", "2"], "both make virtual GPUs; leave one out"),
        (["--html", "missing/page.html"], "missing/page.html' cannot be written: "),
        (["--outputs", ".", "--record"], "'.' cannot be written: Is a directory"),
        (["--tabs", "all"], "unknown option '--tabs'; did you mean '--tab'?"),
    ],
)
def test_a_mistake_is_one_line(run, options, says):
    done = run("```python\n1\n```\n", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


def test_all_tabs_of_a_chapter_without_tabs_are_the_installed_frameworks(tmp_path):
    path = tmp_path / "chapter.md"
    path.write_text("```python\n1\n```\n", encoding="utf-8")
    assert _tabs(read(path), []) == list(NAMES)
    assert len(_tabs(read(path), None)) == 1
    path.write_text(f"```python\nimport {ONE}\n```\n", encoding="utf-8")
    assert _tabs(read(path), []) == [ONE]


def test_a_chapter_in_another_format_is_not_taken_for_a_script(run):
    done = run("```{python}\n1\n```\n", name="book.qmd")
    assert (done.returncode, done.stdout) == (2, "")
    formats = "a chapter in Markdown (.md) or a notebook (.ipynb)"
    assert f"book.qmd' is not {formats}; type xdevice run" in done.stderr


SIDE_BY_SIDE = """
    # Two tabs

    ```{.python .input}
    #@tab all
    import random
    import matplotlib.pyplot as plt
    print("the same")
    ```

    ```{.python .input}
    #@tab FIRST
    plt.plot([1, 2], [1 + random.random() / 10, 2], label="loss"); plt.show()
    ```

    ```{.python .input}
    #@tab SECOND
    random.random()
    plt.plot([1, 2], [1 + random.random() / 10, 2], label="loss"); plt.show()
    ```

    ## Far apart

    ```{.python .input}
    #@tab FIRST
    print("loss", random.random())
    ```

    ```{.python .input}
    #@tab SECOND
    print("loss", 40 + random.random())
    ```

    ```{.python .input}
    #@tab SECOND
    undefined
    ```
"""


@pytest.fixture
def two_tabs():
    if len(NAMES) < 2:
        pytest.skip("two frameworks are needed; the environment `all` has them")
    first, second = NAMES[-1], NAMES[-2]
    return SIDE_BY_SIDE.replace("FIRST", first).replace("SECOND", second), first, second


@pytest.mark.weekly
def test_tabs_are_compared_row_by_row_with_seeds_where_numbers_differ(run, two_tabs, tmp_path):
    chapter, first, second = two_tabs
    done = run(chapter, "--html", "page.html", "--record")
    assert done.returncode == 1, done.stderr
    printed = " ".join(done.stdout.split())
    for says in (
        "1 prints the same",
        "1 other numbers, as far apart as other seeds",
        "1 numbers further apart than seeds explain",
        "1 fails",
        f"{second}: cell 4 (Far apart) failed NameError: name 'undefined' is not defined",
        "row 3 (Far apart): numbers further apart than seeds explain",
    ):
        assert says in printed, done.stdout
    assert f"{first}, seed 2 ok" in done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page  # nothing is loaded
    assert "<h2>Far apart</h2>" in page

    again = run(chapter, "--check", "--json")
    report = json.loads(again.stdout)
    assert (again.returncode, report["changes"]) == (0, [])
    changed = run(chapter.replace('print("the same")', 'print("another")'), "--check")
    assert changed.returncode == 1
    assert f"{first}: cell 1: this cell was not recorded" in changed.stdout
    assert "a recorded cell is gone" in changed.stdout


def test_without_a_record_there_is_nothing_to_check(run):
    done = run("```python\n1\n```\n", "--check")
    assert done.returncode == 2
    assert "does not exist; xdevice chapter --record CHAPTER writes it" in done.stderr


@pytest.mark.weekly
def test_why_a_cell_fails_is_said_if_it_is_known(run_json):
    chapter = """
        ```python
        import a_missing_package
        data = a_missing_package.load()
        ```

        ```python
        len(data)
        ```

        ```python
        import urllib.request
        urllib.request.urlopen("http://127.0.0.1:9")
        ```
    """
    _, report = run_json(chapter, "--tab", ONE, "--keep-going")
    assert [cell["reason"] for cell in cells(report)] == [
        "no 'a_missing_package' is installed or in the chapter's checkout; pip install a_missing_package",
        "cell 1, which assigns 'data', has failed",
        "it needs the network",
    ]


@pytest.mark.weekly
@pytest.mark.skipif("jax" not in NAMES, reason="this is about JAX")
def test_a_chapter_chooses_its_devices_before_its_framework_starts(run_json):
    chapter = """
        ```python
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
        import jax
        ```

        ```python
        len(jax.devices())
        ```
    """
    _, report = run_json(chapter)
    assert cells(report)[1]["text"] == "3"
