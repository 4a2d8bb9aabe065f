"""The projects of projects.toml, and the change to each in changes/."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib
from tree import Tree

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Project:
    """A project, and which of its tests are run."""

    name: str
    repository: str
    tests: list[str]
    install: list[str]
    commit: str = ""
    path: list[str] = field(default_factory=lambda: ["."])
    installed: list[str] = field(default_factory=list)
    distribution: str = ""
    folders: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    virtual: list[str] = field(default_factory=list)
    issues: list[str] = field(default_factory=lambda: ["--xdevice-backend=torch"])
    environment: dict[str, str] = field(default_factory=dict)
    each: list[dict[str, str]] = field(default_factory=lambda: [{}])
    each_after: list[dict[str, str]] = field(default_factory=lambda: [{}])
    timeout: float = 1800

    def change(self, tree: Tree) -> None:
        """Replace the project's own device code by xdevice."""
        file = HERE / "changes" / f"{self.name.replace('-', '_')}.py"
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.change(tree)


def read(path: Path = HERE / "projects.toml") -> dict[str, Project]:
    return {
        name: Project(name, **row)
        for name, row in tomllib.loads(path.read_text(encoding="utf-8")).items()
    }
