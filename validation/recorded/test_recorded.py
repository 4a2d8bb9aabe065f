"""The tool for chapters with recorded outputs, on a small chapter of our own that has every kind of cell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import cells
import chapters
import page
import processes
import pytest
import run as run_of_chapters
import tomllib
from causes import CAUSES, NOTEBOOK_NEEDS, Chapter, Explained, explained

from xdevice.tools.course.texts import difference

HERE = Path(__file__).parent
COURSES = tomllib.loads((HERE / "courses.toml").read_text(encoding="utf-8"))
CELLS = {
    "imports": ("import time, torch, requests", "", "same"),
    "tabs": ("tab.selected('pytorch'), tab.selected('jax', ['mxnet'])", "(True, False)", "same"),
    "device": ("torch.ones(2, device='cuda:1')", "tensor([1., 1.], device='cuda:1')", "same"),
    "address": ("print('at 0x7f0011223344', {'b', 'a'})", "at 0x55aabbccdd {'a', 'b'}", "same"),
    "name": ("torch.cuda.get_device_name(0)", "'NVIDIA GeForce RTX 4090'", "name"),
    "unseeded": ("torch.rand(())", "tensor(2.)", "random"),
    "philox": (
        "torch.manual_seed(0)\nprint(torch.rand(4, device='cuda'))",
        "tensor([0.3990, 0.5167, 0.0249, 0.9401], device='cuda:0')",
        "same",
    ),
    "digits": ("print(f'{2 / 3:.6f}')", "0.666666", "digits"),
    "clock": ("print(f'took {time.time()}')", "took 2.0", "times"),
    "memory": ("print('in use: 3.0 MiB')", "in use: 2.0 MiB", "memory"),
    "download": ("book = requests.get('http://localhost.invalid').text", "", "data"),
    "after": ("len(book)", "7", "data"),
    "inside": ("def pages():\n    return len(book)", "", "same"),
    "through": ("pages()", "7", "data"),
    "partly": (
        "lines = []\nlines.append(requests.get('http://localhost.invalid').text)",
        "",
        "data",
    ),
    "without": ("print(f'{len(lines)} lines')", "1 lines", "data"),
    "branch": ("if True:\n    path = requests.get('http://localhost.invalid').text", "", "data"),
    "reader": ("def reader():\n    return len(path)", "", "same"),
    "reading": ("reader()", "7", "data"),
    "wrong": ("torch.ones(3).sum()", "tensor(4.)", "ours"),
    "stays": ("x = 1", "", "same"),
    "quiet": ("x;", "", "same"),
    "raises": ("torch.ones(3) @ torch.ones(2)", "tensor(4.)", "ours"),
    "ends": ("import os; os._exit(3)", "", "ours"),
    "never": ("x", "1", "not run"),
}
AFTER_TABLE = "\n\nMore.\n\n| chapter | framework | file |\n| --- | --- | --- |\n| b | jax | a |\n"
PAGE = f"# A page\n\n| chapter | framework |\n| --- | --- |{AFTER_TABLE}"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course with one chapter, its outputs, and an empty page."""
    course = tmp_path_factory.mktemp("course")
    (course / "d2l").mkdir()
    name = next(iter(COURSES["d2l-neu"]["chapters"]))
    text = ["```{.python .input}\n%load_ext d2lbook.tab\n```"]
    recorded = {}
    for cell, (code, output, _) in CELLS.items():
        text.append(f"```{{.python .input #{cell}}}\n%%tab pytorch, jax\n{code}\n```")
        text.append(f"```{{.python .input #{cell}}}\n#@tab mxnet\nraise SystemExit\n```")
        outputs = [{"type": "execute_result", "text": output}] if output else []
        recorded[cell] = {"outputs": outputs}
    (course / name).parent.mkdir()
    (course / f"{name}.md").write_text("\n\n".join(text), encoding="utf-8")
    outputs = course / "outputs/pytorch" / f"{name}.json"
    outputs.parent.mkdir(parents=True)
    outputs.write_text(json.dumps({"cells": recorded}), encoding="utf-8")
    (course / "page.md").write_text(PAGE, encoding="utf-8")
    return course, name


def run(course, name, *options):
    places = ["--checkout", str(course), "--page", str(course / "page.md"), "--tab", "pytorch"]
    return subprocess.run(
        [sys.executable, str(HERE / "run.py"), name, *places, *options],
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_each_cell_has_its_cause_and_one_that_gets_worse_is_seen(course, compiler):
    folder, name = course
    wanted = Counter(cause for _, _, cause in CELLS.values())
    done = run(folder, name, "--write", "--show")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    told = dict(re.findall(r"^    (\w+): ([a-z ]+?)(?: \S*\d\S*)?$", done.stdout, re.MULTILINE))
    differ = {
        cell: CAUSES[cause]
        for cell, (_, _, cause) in CELLS.items()
        if cause not in ("same", "not run")
    }
    assert told == differ, done.stdout
    row = page.read(folder / "page.md")[name, "pytorch"]
    assert row.counts == wanted
    assert row.amounts["memory"] == "1.50"
    better = row._replace(counts=Counter(wanted) + Counter({"same": 2, "ours": -1, "not run": -1}))
    had = wanted["same"] + 2
    assert (
        page.worse(row, better)
        == f"WORSE: {had - 1} cells are 'the same' or better, {had} on the page"
    )
    assert page.worse(better, row) == page.worse(row, row) == page.worse(row, None) == ""


@pytest.mark.parametrize(
    ("here", "there", "cause"),
    [
        ("<f at 0x7f00aa11bb22>", "<f at 0x55aabbccdd00>", "same"),
        ("<f at 0x7f00aa11bb22> 0x7f00aa11bb22", "<f at 0x55aabbccdd00> 0x55aabbccdd01", "text"),
        ("id: 139757571029616", "id: 138646640902544", "numbers"),
        ('File "a.h", line 67: no', 'File "/b/a.h", line 69: no', "same"),
        ("{'b', 'a'}", "{'a', 'b'}", "same"),
        ("tensor([1.,  2.])", "tensor([1., 2.])", "same"),
        ("loss 0.1234567", "loss 0.1234561", "digits"),
        ("[1.0, -2.3e-08]", "[1.0, 0.0e+00]", "digits"),
        ("0.1235", "0.1236", "digits"),
        ("shape 1000", "shape 1001", "numbers"),
        ("cuda:1", "cuda:0", "numbers"),
        ("loss 0.5", "loss 0.6", "numbers"),
        ("loss nan", "loss 0.6", "numbers"),
        ("loss nan", "loss nan", "same"),
        ("0.50 sec", "0.01 sec", "times"),
        ("1,024.0 MiB", "1,032.1 MiB", "memory"),
        ("loss 0.5 in 2 ms", "loss 0.6 in 1 ms", "numbers"),
        ("float32", "float64", "text"),
        ("True", "False", "text"),
    ],
)
def test_texts_differ_for_a_reason(here, there, cause):
    assert difference(here, there).cause == cause


def rule(cause, words, printed, replace):
    return Explained(cause, words, ["jax"], *map(re.compile, ("", printed, "")), replace)


@pytest.mark.parametrize(
    ("here", "there", "cause"),
    [
        ("ctx=gpu(0), 1.0", "device=gpu(0), 1.0", "version"),
        ("ctx=gpu(0), 1.0", "device=gpu(0), 2.0", "ours"),
        ("error 2e-08", "error 1e-07", "documented"),
        ("error 2e-08, loss 1.0", "error 1e-07, loss 2.0", "ours"),
        ("error 2e-08, ctx=gpu(0)", "error 1e-07, device=gpu(0)", "documented"),
        ("error 2e-01", "error 1e-07", "ours"),
    ],
)
def test_a_known_difference_explains_nothing_else(here, there, cause):
    known = [
        rule("documented", "rounding", "error", {r"\b\de-0[78]": "0"}),
        rule("version", "devices", "", {"ctx=": "device="}),
    ]
    chapter = Chapter("jax", [chapters.Cell("1", name="a")], {"a": there}, known)
    (result,) = chapter.results({"a": {"text": here, "error": ""}})
    assert result.cause == cause


@pytest.mark.parametrize(("code", "cause"), [("id(x)", "same"), ("print(x)", "ours")])
def test_what_id_returns_is_an_address(code, cause):
    cells = [chapters.Cell(code, name="a")]
    chapter = Chapter("jax", cells, {"a": "139757571029616"}, [])
    (result,) = chapter.results({"a": {"text": "138646640902544", "error": ""}})
    assert result.cause == cause


def test_what_two_of_three_runs_print_alike_by_chance_is_random_all_the_same():
    chapter = Chapter("jax", [chapters.Cell("1", name="a")], {"a": "48 heads"}, [])
    runs = [{"a": {"text": text, "error": ""}} for text in ("52 heads", "52 heads", "47 heads")]
    assert [chapter.results(*runs[:n])[0].cause for n in (1, 2, 3)] == ["ours", "ours", "random"]


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        (("0.5", "0.7", "0.6"), "times"),
        (("loss 0.5, 1 sec", "loss 0.7, 1 sec", "loss 0.6, 1 sec"), "random"),
    ],
)
def test_a_loss_beside_a_time_is_not_a_time(texts, cause):
    there, *runs = texts
    chapter = Chapter("jax", [chapters.Cell("print(time.time())", name="a")], {"a": there}, [])
    (result,) = chapter.results(*({"a": {"text": text, "error": ""}} for text in runs))
    assert result.cause == cause


@pytest.mark.parametrize(
    ("second", "cause"), [("y = 1", "data"), ("x = 1", "ours"), ("[x for x in y]", "data")]
)
def test_a_failed_cell_explains_what_uses_its_names_until_they_are_assigned_again(second, cause):
    texts = ["x = get()", second, "print(x)"]
    cells = [chapters.Cell(text, name=name) for name, text in zip("abc", texts, strict=True)]
    outcomes = {name: {"text": "2", "error": ""} for name in "bc"}
    outcomes["a"] = {"text": "", "error": "ConnectionError: no"}
    results = Chapter("jax", cells, dict.fromkeys("abc", "1"), []).results(outcomes)
    assert results[2].cause == cause


@pytest.mark.parametrize(
    ("first", "cause"),
    [("train(model, get())", "data"), ("train(model=model)", "data"), ("y = f(model)", "ours")],
)
def test_a_failed_cell_that_would_have_trained_a_model_explains_what_the_model_prints(first, cause):
    cells = [chapters.Cell(first, name="a"), chapters.Cell("print(model.weight)", name="b")]
    outcomes = {"a": {"text": "", "error": "ConnectionError: no"}, "b": {"text": "2", "error": ""}}
    results = Chapter("pytorch", cells, dict.fromkeys("ab", "1"), []).results(outcomes)
    assert results[1].cause == cause


@pytest.mark.parametrize(("second", "cause"), [("y = 1", "data"), ("np.random.seed(1)", "random")])
def test_random_numbers_whose_seed_a_failed_cell_would_have_set_are_counted_with_it(second, cause):
    texts = "np.random.seed(get())", second, "normal()"
    cells = [chapters.Cell(text, name=name) for name, text in zip("abc", texts, strict=True)]
    run, other = ({name: {"text": text, "error": ""} for name in "bc"} for text in "23")
    run["a"] = {"text": "", "error": "ConnectionError: no"}
    results = Chapter("mxnet", cells, dict.fromkeys("abc", "1"), []).results(run, other)
    assert results[2].cause == cause


@pytest.mark.parametrize(("drawn", "cause"), [("get_key()", "data"), ("key", "ours")])
def test_a_failed_cell_that_would_have_drawn_a_key_explains_other_random_numbers(drawn, cause):
    texts = f"x = mixup({drawn}, get())", "normal(d2l.get_key())"
    cells = [chapters.Cell(text, name=name) for name, text in zip("ab", texts, strict=True)]
    outcomes = {"a": {"text": "", "error": "ConnectionError: no"}, "b": {"text": "2", "error": ""}}
    results = Chapter("jax", cells, dict.fromkeys("ab", "1"), []).results(outcomes)
    assert results[1].cause == cause


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["chapter_x"], "no row of courses.toml is so named; --list shows them"),
        (["--checkout", "nowhere"], "nowhere is not a folder"),
        (["--checkout", ".", "--write"], "the page's rows at"),
        (["--notebook", "none.ipynb"], "none.ipynb does not exist; give the path of a notebook"),
        (["--notebook", "text.ipynb"], "text.ipynb is not a notebook of format 4"),
        (["--notebook", "empty.ipynb"], "empty.ipynb has no recorded outputs"),
        (["--notebook", "no.ipynb"], "no.ipynb imports no framework; add --tab, as in --tab jax"),
    ],
)
def test_a_wrong_name_or_checkout_is_one_line(tmp_path, names, says):
    (tmp_path / "text.ipynb").write_text("text", encoding="utf-8")
    (tmp_path / "empty.ipynb").write_text(notebook_of(("1",)), encoding="utf-8")
    (tmp_path / "no.ipynb").write_text(notebook_of(("1", value("1"))), encoding="utf-8")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), *names],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_packages_that_are_not_installed_are_named():
    assert run_of_chapters.missing(["pytest", "no-such-package"]) == ["no-such-package"]


def test_a_row_is_read_from_the_page_as_it_was_written(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    amounts = {"cells": "4", "same": "2", "digits": "3e-06"}
    rows = [
        page.Row(chapter, tab, Counter(same=3, digits=2, ours=1), amounts)
        for chapter in ("chapter_b/b", "chapter_a/a")
        for tab in ("pytorch", "jax")
    ]
    for row in rows * 2:
        page.write(path, row)
    found = page.read(path)
    assert list(found) == sorted((row.chapter, row.tab) for row in rows)
    assert all(+found[row.chapter, row.tab].counts == row.counts for row in rows)
    assert all(found[row.chapter, row.tab].amounts == row.amounts for row in rows)
    assert path.read_text(encoding="utf-8").endswith(AFTER_TABLE)


def test_the_cells_that_print_text_are_counted(tmp_path):
    cells = [chapters.Cell("", name=name) for name in "abc"]
    recorded = {"a": "1", "b": "", "c": "2"}
    outcomes = {name: {"text": recorded[name], "error": ""} for name in "ab"}
    row = page.Row.of("chapter_a/a", "jax", Chapter("jax", cells, recorded, []).results(outcomes))
    assert row.cells()[:2] == ["3 (2)", "2 (1)"]
    path = tmp_path / "page.md"
    path.write_text(PAGE, encoding="utf-8")
    page.write(path, row, row._replace(tab="mxnet"))
    assert "| all 2 rows | | 6 (4) | 4 (2) |" in path.read_text(encoding="utf-8")
    assert page.total_of(list(page.read(path).values())).agree() == 2


def notebook_of(*cells):
    """A notebook in Jupyter's format, of codes and their outputs."""
    made = [
        {"cell_type": "code", "source": code.splitlines(keepends=True), "outputs": list(outputs)}
        for code, *outputs in cells
    ]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": "# A"}, *made]})


def printed(text):
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def value(text):
    return {"output_type": "execute_result", "data": {"text/plain": [text]}}


def raised(name, text):
    return {"output_type": "error", "ename": name, "evalue": text, "traceback": []}


def test_a_notebook_has_its_outputs_in_its_file(tmp_path):
    path = tmp_path / "a.ipynb"
    cells = (
        ("import torch as t",),
        ("print(1)\n2", printed("1\n"), {**printed("no"), "name": "stderr"}, value("2")),
        ("raise ValueError('no')", printed("x"), raised("ValueError", "no")),
    )
    path.write_text(notebook_of(*cells), encoding="utf-8")
    code = chapters.notebook(path)
    assert [cell.code for cell in chapters.read(path, "pytorch")] == [cell[0] for cell in cells]
    outputs = {"cell-1": "", "cell-2": "1\n2\n", "cell-3": "ValueError: no"}
    assert chapters.notebook_outputs(code) == outputs
    assert chapters.notebook_tab(code) == "pytorch"


@pytest.mark.parametrize(
    ("there", "here", "error", "cause"),
    [
        ("ValueError: no", "", "ValueError: no", "same"),
        ("ValueError: no", "", "ValueError: yes", "ours"),
        ("ValueError: ignored", "", "ValueError: yes", "same"),
        ("TypeError: ignored", "", "ValueError: yes", "ours"),
        ("1", "", "ImportError: cannot import name 'a' from 'b'", "version"),
        ("1", "", "ModuleNotFoundError: No module named 'a'", "data"),
        ("1", "", "ImportError: IProgress not found. Please update ipywidgets.", "data"),
        ("1", "", "FileNotFoundError: [Errno 2] No such file or directory: 'a'", "data"),
        ("0% 9s\r100% 1s\n1", "0% 4s\r100% 1s\n1", "", "same"),
        ("1/2\x08\x08\x082/2 end", "0/2\x08\x08\x082/2 end", "", "same"),
        ("1\r\n2", "1\n2", "", "same"),
        ("1", "2", "", "ours"),
    ],
)
def test_what_a_notebook_shows(there, here, error, cause):
    cells = [chapters.Cell("x", name="a")]
    of = Chapter("pytorch", cells, {"a": there}, explained(), NOTEBOOK_NEEDS)
    assert of.results({"a": {"text": here, "error": error}})[0].cause == cause


def test_lines_that_install_packages_are_left_out():
    lines = ["if x:\n", "    !pip install -U jax\n", "%pip list\n", "!sudo apt-get x\n", "!ls\n"]
    left = ["if x:\n", "    pass\n", "pass\n", "pass\n", "!ls\n"]
    assert cells.without_installing(lines) == left


def test_a_folder_of_data_is_linked_and_not_written(tmp_path):
    (tmp_path / "data" / "b").mkdir(parents=True)
    (tmp_path / "data" / "b" / "c.txt").write_text("1", encoding="utf-8")
    processes.link_files(tmp_path / "data", tmp_path / "place")
    (tmp_path / "place" / "b" / "made").touch()
    assert (tmp_path / "place" / "b" / "c.txt").read_text(encoding="utf-8") == "1"
    assert [path.name for path in (tmp_path / "data" / "b").iterdir()] == ["c.txt"]


def test_a_notebook_runs_in_a_copy_of_its_folder(tmp_path):
    source = tmp_path / "own" / "a.ipynb"
    (source.parent / "models").mkdir(parents=True)
    source.write_text("{}", encoding="utf-8")
    (source.parent / "models" / "a.bin").write_text("1", encoding="utf-8")
    (tmp_path / "data").mkdir()
    made = processes.folder_of_notebook(source, tmp_path / "scratch")
    (made.parent / "models" / "a.bin").write_text("2", encoding="utf-8")
    assert (made.parents[1] / "data").is_dir()
    assert (source.parent / "models" / "a.bin").read_text(encoding="utf-8") == "1"


@pytest.mark.weekly
def test_a_notebook_and_a_chapter_with_data_are_compared_from_end_to_end(
    course, tmp_path, compiler
):
    folder, name = course
    notebook = tmp_path / "a.ipynb"
    notebook.write_text(
        notebook_of(
            ("!pip install nothing\nimport torch", printed("Installed")),
            ("torch.ones(2).cuda()", value("tensor([1., 1.], device='cuda:0')")),
            ("torch.ones(2).cuda() + torch.ones(2)", raised("RuntimeError", MIXED)),
            ("torch.cuda.device_count(), open('b.txt').read()", value("(1, 'b')")),
            ("torch.ones(())", value("tensor(2.)")),
        ),
        encoding="utf-8",
    )
    (tmp_path / "b.txt").write_text("b", encoding="utf-8")
    done = run(folder, name, "--notebook", str(notebook))
    assert "5 cells (5), 3 (3) the same, 1 documented, 1 ours" in done.stdout, done.stderr
    assert done.returncode == 1

    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "words.txt").write_text("some words", encoding="utf-8")
    chapter = folder / next(reversed(COURSES["d2l-neu"]["chapters"]))
    chapter.parent.mkdir()
    text = "```{.python .input #a}\n#@tab pytorch\nprint(open('../data/words.txt').read())\n```"
    chapter.with_suffix(".md").write_text(text, encoding="utf-8")
    outputs = folder / "outputs/pytorch" / f"{chapter.parent.name}/{chapter.name}.json"
    outputs.parent.mkdir(parents=True)
    outputs.write_text(
        json.dumps(
            {"cells": {"a": {"outputs": [{"type": "execute_result", "text": "some words"}]}}}
        ),
        encoding="utf-8",
    )
    wanted = f"{chapter.parent.name}/{chapter.name}"
    assert "1 cells (1), 1 ours" in run(folder, wanted).stdout
    given = run(folder, wanted, "--data", str(tmp_path / "own"))
    assert "1 cells (1), 1 (1) the same" in given.stdout, given.stderr


MIXED = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
)


def test_code_that_a_cell_reaches_is_that_of_the_functions_it_names():
    cells = [
        chapters.Cell("def bench(f):\n    return time.time()", name="a"),
        chapters.Cell("def twice(f):\n    return bench(f), bench(f)", name="b"),
        chapters.Cell("twice(print)", name="c"),
        chapters.Cell("print(2)", name="d"),
    ]
    code = chapters.reaches(cells)
    assert "time.time" in code["c"]
    assert "time.time" not in code["d"]


def test_the_page_has_the_rows_of_the_courses_and_no_cell_of_ours():
    rows = page.read()
    listed = {
        (chapter, tab)
        for course in COURSES.values()
        for chapter, tabs in course["chapters"].items()
        for tab in tabs.split()
    }
    assert rows.keys() == listed
    assert not [name for name, row in rows.items() if row.counts["ours"]]
    assert all(set(row.counts) <= set(CAUSES) for row in rows.values())


def test_the_sums_are_those_of_the_rows():
    rows = page.read().values()
    renew = "python validation/recorded/run.py --sums writes them"
    assert page.line_of_sums(rows) in page.PAGE.read_text(encoding="utf-8").splitlines(), renew
    assert page.SUMMARY.read_text(encoding="utf-8") == page.summary(rows), renew
    assert page.summary([]) != page.summary(rows)


def test_the_page_says_each_known_difference():
    text = " ".join(page.PAGE.read_text(encoding="utf-8").split())
    assert not [line.words for line in explained() if f"| {line.words} |" not in text]
