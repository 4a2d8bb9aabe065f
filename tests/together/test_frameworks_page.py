"""What the documentation says of the adapters is what the registry says."""

from pathlib import Path

import pytest

import xdevice
from xdevice.contract import CAPABILITIES
from xdevice.framework.adapters import registered
from xdevice.framework.registry import ORDER

MAY_BE_LEFT_OUT = {
    "device_named",
    "is_data",
    "is_tracing",
    "stream",
    "wait",
    "is_packable",
    "find_races",
    "hides_gpus",
    "measure_memory",
    "memory_use",
    "move_many",
    "as_attribute",
}
# Nothing is lacking without names of its own, plain data, a compiler, streams, a setting that hides GPUs, a count of
# memory by its uses, arrays that arrive later, a shorter way to move several tensors, a compiler that changes methods.

PAGE = Path(__file__).parents[2] / "docs" / "project" / "frameworks.md"

pytestmark = pytest.mark.skipif(
    not set(ORDER) <= set(xdevice.available()),
    reason="needs all six frameworks side by side: `tox -e all`",
)


def capabilities():
    """The table of what each adapter can do, with a note for each thing that it cannot."""
    notes = []
    lines = ["| | " + " | ".join(ORDER) + " |", "| --- |" + " --- |" * len(ORDER)]
    for capability, functions in CAPABILITIES.items():
        if set(functions) <= MAY_BE_LEFT_OUT:
            continue
        cells = [cell(registered()[name], capability, functions, notes) for name in ORDER]
        lines.append(f"| {capability} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{i}. {note}" for i, note in enumerate(notes, 1))]).strip()


def cell(backend, capability, functions, notes):
    opened = getattr(backend, capability)
    lacking = [f for f in functions if f not in vars(opened) and f not in MAY_BE_LEFT_OUT]
    if not lacking:
        return "yes"
    reasons = sorted({opened.why_not(f) for f in lacking})
    numbers = []
    for reason in reasons:
        note = f"{backend}: {reason}."
        if note not in notes:
            notes.append(note)
        numbers.append(str(notes.index(note) + 1))
    has_none = vars(opened).keys().isdisjoint(functions)
    what = "no" if has_none else "all but `" + "`, `".join(lacking) + "`"
    return f"{what} ({', '.join(numbers)})"


def test_the_table_is_the_registrys():
    text = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- capabilities -->\n", "\n<!-- /capabilities -->"
    written = text[text.index(begin) + len(begin) : text.index(end)]
    assert written.strip() == capabilities(), (
        f"the table in {PAGE} is stale; write:\n\n{capabilities()}\n"
    )


def test_the_versions_are_those_tested():
    text = PAGE.read_text(encoding="utf-8")
    for name in ORDER:
        version = registered()[name].hardware.build()["version"].partition("+")[0]
        assert version in text, (
            f"{PAGE} does not name {name} {version}, which this environment tests"
        )


def test_each_reason_ends_an_error():
    for name in ORDER:
        for reason in registered()[name].adapter.CANNOT.values():
            assert reason == reason.strip()
            assert not reason.endswith(".")
