"""The packages that a chapter imports and that are not installed."""

from xdevice.tools.course.chapters import Cell
from xdevice.tools.course.missing import missing_packages


def test_imports_that_are_not_installed_are_named_as_pip_does():
    code = "import os, absent_one.part\nfrom absent_two import x as y\nimport cv2_absent, numpy"
    cells = [Cell(code), Cell("%matplotlib inline\nimport absent_one\n!ls")]

    assert missing_packages(cells, []) == ["absent_one", "absent_two", "cv2_absent"]


def test_imports_of_the_checkouts_own_modules_count(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "__init__.py").write_text("import absent_one\n")
    (own / "torch.py").write_text("import absent_two\nfrom own import base\nimport os\n")
    (own / "unused.py").write_text("import absent_three\n")
    (tmp_path / "beside.py").write_text("import absent_four\n")
    cells = [Cell("from own import torch as d2l\nimport beside")]

    assert missing_packages(cells, [tmp_path]) == ["absent_four", "absent_one", "absent_two"]


def test_imports_that_may_fail_do_not_count():
    optional = "try:\n    import absent_one\nexcept ImportError:\n    pass\ndef f():\n    import absent_two"
    tags = ("skip-execution",)
    cells = [Cell(optional), Cell("import absent_three", tags=tags), Cell("import google.colab.x")]

    assert missing_packages(cells, []) == []


def test_a_chapter_that_installs_packages_itself_is_left_to_it():
    cells = [Cell("!pip install -q absent_one"), Cell("import absent_one")]

    assert missing_packages(cells, []) == []
