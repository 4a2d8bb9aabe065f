"""Why a cell fails, as far as its error and the other cells tell, and what is not installed."""

import os
from pathlib import Path

import pytest

from xdevice.tools.course.failures import explanations, missing_packages


def explained(*cells):
    """The reason and the cause of each cell, of which the code and the error are given."""
    codes = [code for code, _ in cells]
    texts = [text for _, text in cells]
    errors = [text if text.partition(":")[0].endswith("Error") else "" for text in texts]
    return [tuple(why) for why in explanations(codes, errors, texts, Path("/book/chapter"))]


@pytest.mark.parametrize(("error", "reason"), [
    ("ModuleNotFoundError: No module named 'cv2'",
     "no 'cv2' is installed or in the chapter's checkout; pip install opencv-python-headless"),
    ("ModuleNotFoundError: No module named 'paddle.fluid'",
     "the 'paddle' that is used has no 'paddle.fluid'; the chapter needs another version"),
    ("ModuleNotFoundError: No module named 'google.colab'", "'google.colab' exists on Google Colab alone"),
    ("ImportError: IProgress not found. Please update jupyter and ipywidgets.",
     "a progress bar needs 'ipywidgets'; pip install ipywidgets"),
    ("RuntimeError: operator torchvision::nms does not exist",
     "the installed torchvision was built for another PyTorch; install the one released with yours"),
    ("StdinNotImplementedError: raw_input was called", "nothing can be typed while a chapter runs"),
    ("URLError: <urlopen error [Errno 111] Connection refused>", "it needs the network"),
    ("RuntimeError: Download from https://example.com/resnet18.pdparams failed. Retry limit reached",
     "it needs the network"),
    ("ValueError: on purpose", ""),
])  # fmt: skip
def test_an_error_that_is_known_has_a_reason(error, reason):
    assert explained(("x = 1", error)) == [(reason, 0)]


@pytest.mark.parametrize(("virtual", "reason"), [
    ("", "it needs a GPU; xdevice chapter --gpus 2 gives it virtual ones"), ("2:stand-in", ""),
])  # fmt: skip
def test_a_cell_that_needs_a_gpu_is_told_of_virtual_ones(virtual, reason, monkeypatch):
    monkeypatch.setenv("XDEVICE_VIRTUAL_GPUS", virtual)
    error = "AssertionError: Torch not compiled with CUDA enabled"
    assert explained(("x.cuda()", error)) == [(reason, 0)]


@pytest.mark.parametrize("error", [
    "FileNotFoundError: [Errno 2] No such file or directory: '../data/a.csv'",
    "FileNotFoundError: ../data/a.csv not found.",
])  # fmt: skip
def test_where_a_missing_file_is_looked_for_is_said(error):
    path = os.path.normpath("/book/data/a.csv")
    assert explained(("open('../data/a.csv')", error)) == [
        (f"there is no {path!r}; put the file there", 0)
    ]


def test_a_cell_that_fails_without_an_earlier_one_names_the_first_of_them():
    missing = "no 'absent' is installed or in the chapter's checkout; pip install absent"
    assert explained(
        ("import absent as ab", "ModuleNotFoundError: No module named 'absent'"),
        ("z = ab.f()", "NameError: name 'ab' is not defined"),
        ("z", "NameError: name 'z' is not defined"),
    ) == [
        (missing, 0),
        ("cell 1, which assigns 'ab', has failed", 1),
        ("cell 2, which assigns 'z', has failed, because of cell 1", 1),
    ]


def test_a_file_that_a_command_could_not_download_needs_the_network():
    assert explained(
        ("!wget https://example.com/a.csv", "wget: unable to resolve host address 'example.com'"),
        ("open('a.csv')", "FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'"),
    ) == [("", 0), ("cell 1 could not download; it needs the network", 1)]


def test_a_name_may_come_from_an_import_of_all_names():
    [_, (reason, cause), (unknown, _)] = explained(
        ("from absent import *", "ModuleNotFoundError: No module named 'absent'"),
        ("np.ones(3)", "NameError: name 'np' is not defined"),
        ("1 + ''", "TypeError: unsupported"),
    )
    assert (reason, cause) == ("cell 1, which imports all names of 'absent', has failed", 1)
    assert unknown == ""


def test_imports_that_are_not_installed_are_named_as_pip_does():
    code = "import os, absent_one.part\nfrom absent_two import x as y\nimport cv2_absent, numpy"
    cells = [code, "%matplotlib inline\nimport absent_one\n!ls"]

    assert missing_packages(cells, []) == ["absent_one", "absent_two", "cv2_absent"]


def test_imports_of_the_checkouts_own_modules_count(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "__init__.py").write_text("import absent_one\n")
    (own / "torch.py").write_text("import absent_two\nfrom own import base\nimport os\n")
    (own / "unused.py").write_text("import absent_three\n")
    (tmp_path / "beside.py").write_text("import absent_four\n")
    cells = ["from own import torch as d2l\nimport beside"]

    assert missing_packages(cells, [tmp_path]) == ["absent_four", "absent_one", "absent_two"]


def test_imports_that_may_fail_do_not_count():
    optional = "try:\n    import absent_one\nexcept ImportError:\n    pass\ndef f():\n    import absent_two"
    cells = [optional, "import google.colab.x"]

    assert missing_packages(cells, []) == []


def test_a_chapter_that_installs_packages_itself_is_left_to_it():
    cells = ["!pip install -q absent_one", "import absent_one"]

    assert missing_packages(cells, []) == []
