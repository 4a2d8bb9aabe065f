"""A report as SARIF 2.1.0 and as annotations of GitHub's, beside the text and the JSON that it has itself."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from xdevice._version import __version__
from xdevice.tensors.transfers.report import Finding, Report
from xdevice.tensors.transfers.rules import RULES


def sarif(report: Report) -> str:
    """The findings that have advice, in the format that code scanning reads."""
    driver = {
        "name": "xdevice",
        "version": __version__,
        "rules": [{"id": name, "shortDescription": {"text": name.replace("-", " ").capitalize()}} for name in RULES],
    }
    results = [_result(finding) for finding in report if finding.rule and finding.file]
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
    runs: list[Any] = [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": runs}, indent=2, ensure_ascii=False)


def _result(finding: Finding) -> dict[str, Any]:
    region = {"startLine": finding.line, "snippet": {"text": finding.source}}
    place = {"physicalLocation": {"artifactLocation": {"uri": _uri(finding.file)}, "region": region}}
    message = {"text": f"{finding.what}; {finding.advice}"}
    return {"ruleId": finding.rule, "level": "warning", "message": message, "locations": [place]}


def _uri(file: str) -> str:
    """Relative to the working directory where it is below it: as code scanning finds it in a repository."""
    path = Path(file).resolve()
    return quote(path.relative_to(Path.cwd()).as_posix()) if path.is_relative_to(Path.cwd()) else path.as_uri()


def github(report: Report) -> str:
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


FORMATS: dict[str, Callable[[Report], str]] = {"text": str, "json": Report.to_json, "sarif": sarif, "github": github}
