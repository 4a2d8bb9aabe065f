"""The page of validation/fits has the table of its figures."""

import importlib.util
from pathlib import Path

HERE = Path(__file__).parent


def tool():
    spec = importlib.util.spec_from_file_location("fits_of_recorded_peaks", HERE / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_table_of_its_figures():
    run = tool()
    rows = run.rows()
    assert len(rows) > 1
    assert "\n".join(run.table(rows)) in (HERE / "README.md").read_text(encoding="utf-8")


def test_the_documentation_has_the_median_error_of_the_table():
    run = tool()
    median = run.errors(run.rows(), "xdevice").partition("%")[0]
    for page in ("README.md", "README.zh.md", "docs/validation.md"):
        assert f"{median} %" in (HERE.parents[1] / page).read_text(encoding="utf-8"), page


def test_no_card_with_less_than_the_recorded_peak_is_said_to_suffice():
    assert not [row for row in tool().rows() if row.fits_too_little]


def test_an_error_is_relative_to_what_was_recorded():
    run = tool()
    row = run.Row("T5", "SGD", 1, "t4", 200, {"xMem": 300}, 190, 180, 210, 50, "fits")
    assert run.errors([row], "xMem").startswith("50.0%")
    assert run.errors([row], "xdevice").startswith("5.0%")
