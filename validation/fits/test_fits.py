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
    page = (HERE / "README.md").read_text(encoding="utf-8")
    assert "\n".join(run.table(rows)) in page
    assert "\n".join(run.tables_by_rule(run.rows(run.BY_RULE))) in page


def test_the_rows_of_the_rule_are_counted_and_none_is_of_the_first():
    run = tool()
    by_rule = run.read(run.BY_RULE.recorded)
    assert by_rule.keys() == run.read(run.BY_RULE.counted).keys()
    assert not by_rule.keys() & run.read(run.FIRST.recorded).keys()


def test_the_documentation_has_the_median_error_of_the_rows_by_rule():
    run = tool()
    peaks = [row for row in run.rows(run.BY_RULE) if row.ran]
    median = run.errors(peaks, "xdevice").partition("%")[0]
    for page in ("README.md", "README.zh.md", "docs/validation.md"):
        text = (HERE.parents[1] / page).read_text(encoding="utf-8")
        assert f"{median} %" in text, page
        assert f"{len(peaks)} " in text, page


def test_no_card_with_less_than_the_recorded_peak_is_said_to_suffice():
    assert not [row for row in tool().rows() if row.fits_too_little]


def test_an_error_is_relative_to_what_was_recorded():
    run = tool()
    row = run.Row("T5", "SGD", 1, "t4", 200, {"xMem": 300}, 190, 180, 210, 50, "fits")
    assert run.errors([row], "xMem").startswith("50.0%")
    assert run.errors([row], "xdevice").startswith("5.0%")
