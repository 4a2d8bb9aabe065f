"""A report as text, as JSON, as SARIF 2.1.0 and as annotations of GitHub's."""

import json as _json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from xdevice._version import __version__
from xdevice.kit.units import size
from xdevice.tensors.transfers.contents import Contents
from xdevice.tensors.transfers.finding import Finding, number, time
from xdevice.tensors.transfers.rules import RULES

NO_GPU = (
    "no framework had a GPU, so nothing could be copied; xdevice run --watch-transfers --virtual-gpus 2 --stand-in "
    "SCRIPT runs a script on two virtual ones"
)

_FEW = 2  # sentences on what is not seen


def text(report: Contents) -> str:
    """One finding a line, under it what to write instead; a last line with the totals, and what they leave out."""
    lines = [line for finding in report for line in _lines(finding, report)]
    return "\n".join([*lines, *summary(report)])


def _lines(finding: Finding, report: Contents) -> Iterator[str]:
    yield f"{finding.where}  {finding.what}" + (f"   | {finding.source}" if finding.source else "")
    if finding.advice:
        yield " " * len(finding.where) + f"  {finding.advice}; at {report.bus}: {time(finding.estimate)} here"


def summary(report: Contents) -> list[str]:
    """The totals and the stated bus, what is allowed, and what was not seen."""
    if not report.has_gpu():
        return [NO_GPU]
    took = f": {time(report.estimate)} at {report.bus}, a stated bus" if report.copies else ""
    accepted = f"; {number(report.allowed)} more allowed by `# xdevice: allow`" if report.allowed else ""
    total = f"in all {number(report.copies)}, {size(report.nbytes)}{took}{accepted}"
    unseen = report.unseen()
    more = f"; {len(unseen) - _FEW} more in to_json()" if len(unseen) > _FEW else ""
    return [total, f"not seen: {'; '.join(sentence.rstrip('.') for sentence in unseen[:_FEW])}{more}"]


def json(report: Contents) -> str:
    """The findings and the totals."""
    return _json.dumps(
        {
            "version": __version__,
            "frameworks": report.frameworks,
            "bus": {"bytes_per_second": report.bus.bandwidth, "seconds_per_copy": report.bus.latency},
            "seconds": round(report.seconds, 3),
            "steps": report.steps,
            "copies": report.copies,
            "nbytes": report.nbytes,
            "estimate": report.estimate,
            "allowed": report.allowed,
            "has_gpu": report.has_gpu(),
            "unseen": report.unseen(),
            "findings": [{name.rstrip("_"): value for name, value in asdict(finding).items()} for finding in report],
        },
        indent=2,
        ensure_ascii=False,
    )


def sarif(report: Contents) -> str:
    """The findings that have advice, in the format that code scanning reads."""
    driver = {
        "name": "xdevice",
        "version": __version__,
        "rules": [{"id": rule.name, "shortDescription": {"text": _words(rule.name)}} for rule in RULES],
    }
    results = [
        {
            "ruleId": finding.rule,
            "level": "warning",
            "message": {"text": f"{finding.what}; {finding.advice}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(finding.file)},
                        "region": {"startLine": finding.line, "snippet": {"text": finding.source}},
                    }
                }
            ],
        }
        for finding in report
        if finding.rule and finding.file
    ]
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
    runs: list[Any] = [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]
    return _json.dumps({"$schema": schema, "version": "2.1.0", "runs": runs}, indent=2, ensure_ascii=False)


def _words(rule: str) -> str:
    return rule.replace("-", " ").capitalize()


def _uri(file: str) -> str:
    """Relative to the working directory where it is below it: as code scanning finds it in a repository."""
    path = Path(file).resolve()
    return quote(path.relative_to(Path.cwd()).as_posix()) if path.is_relative_to(Path.cwd()) else path.as_uri()


def github(report: Contents) -> str:
    """A warning of a workflow for each finding that has advice: GitHub shows it beside the line."""
    return "\n".join(
        f"::warning file={_escaped(os.path.relpath(finding.file), ':,')},line={finding.line},"
        f"title={finding.rule}::{_escaped(f'{finding.what}; {finding.advice}')}"
        for finding in report
        if finding.rule and finding.file
    )


def _escaped(words: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        words = words.replace(character, f"%{ord(character):02X}")
    return words


FORMATS: dict[str, Callable[[Contents], str]] = {"text": text, "json": json, "sarif": sarif, "github": github}
