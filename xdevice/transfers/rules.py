"""The copies that a program can avoid, and what to write instead.

The advice, in advice.txt, is that of the first rule that applies to the line.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from xdevice.transfers import syntax
from xdevice.transfers.facts import RARE, REPEATED, Facts

RULES: dict[str, Callable[[Facts], object]] = {
    "loop-of-a-library": lambda line: (
        line.line_is(syntax.trains) and line.copies >= REPEATED and (line.per_step or 1) > RARE
    ),
    "numbers-one-by-one": lambda line: line.is_read and line.together >= 3,
    "sum-on-the-host": lambda line: line.is_read and line.line_is(syntax.adds_up),
    "decision-on-the-host": lambda line: line.is_read and line.line_is(syntax.decides),
    "number-per-step": lambda line: line.is_read,
    "shown-per-step": lambda line: line.kind == "print" and line.is_often,
    "size-not-given": lambda line: (
        line.kind == "size" and line.is_often and line.line_is(syntax.is_counted)
    ),
    "size-from-values": lambda line: line.kind == "size" and line.is_often,
    "index-from-the-host": lambda line: line.kind == "index" and line.is_often,
    "number-from-python": lambda line: line.is_own_number and line.repeats,
    "computed-on-the-host": lambda line: line.kind == "operand" and line.to == "host",
    "operand-elsewhere": lambda line: line.kind == "operand" and not line.is_own_number,
    "replicated-each-step": lambda line: line.repeats and line.site.replicating == line.copies,
    "gradient-crosses": lambda line: (
        line.kind == "gradient" and line.repeats and not line.is_own_number
    ),
    "made-by-numpy": lambda line: line.is_sent and line.repeats and line.factory and line.is_numpys,
    "made-on-the-host": lambda line: (
        (line.is_sent or line.is_across)
        and line.is_made_here
        and not line.is_numpys
        and not line.is_own_number  # a factory on the GPU is sent one: JAX's ones
    ),
    "same-values-again": lambda line: line.is_sent and line.is_same and not line.is_rare,
    "moved-in-the-loop": lambda line: (
        line.kind == "copy" and line.repeats and not line.site.marks and line.unchanged
    ),
    "built-of-numbers": lambda line: line.is_sent_often and line.line_is(syntax.is_literal),
    "between-gpus": lambda line: (
        line.is_across and line.repeats and not line.is_preparation and not line.is_rare
    ),
    "many-small": lambda line: (
        line.kind == "copy"
        and line.repeats
        and not line.is_preparation
        and line.together >= 4
        and line.is_small
    ),
    "blocks-although-pinned": lambda line: (
        line.is_sent_often and line.site.pinned == line.copies and not line.site.non_blocking
    ),
    "waits-although-unpinned": lambda line: (
        line.is_sent_often and line.site.non_blocking and not line.site.pinned
    ),
    "unpinned-batches": lambda line: (
        line.is_sent_often and not line.site.pinned and not line.site.non_blocking
    ),
    "fetched-per-step": lambda line: line.is_fetched and line.repeats and not line.is_rare,
}
"""When a line makes each avoidable sort of copies; a special case comes before the general one."""

_LINES = Path(__file__).with_name("advice.txt").read_text(encoding="utf-8").splitlines()
ADVICE = dict(line.split(": ", 1) for line in _LINES)
"""What to write instead, for each rule; it may name facts: ``{at.together}``."""


def advice(line: Facts, words: Mapping[str, str]) -> tuple[str, str]:
    """The name of the first rule that applies, and what to write instead; both may be empty.

    A line of a library that copies has no advice, which its caller could not
    follow, unless the library trains. ``words`` are the framework's own, by
    rule. A rule that has words neither there nor in advice.txt is not for this
    framework.
    """
    if line.site.place is None:
        return "", ""
    templates = {**ADVICE, **words}
    if line.factory is not None and line.factory.module == "xdevice":
        templates["made-on-the-host"] = ADVICE["made-on-the-host"]
    names = ["loop-of-a-library"] if line.site.library is not None else list(RULES)
    for name in names:
        if name in templates and RULES[name](line):
            return name, templates[name].format(at=line)
    return "", ""
