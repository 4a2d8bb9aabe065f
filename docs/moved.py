"""A hook of MkDocs: a page that was beside index.md and is in a folder is still found at its old address."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

FOLDERS = re.compile(r"(tensors|several|project|reference)/[^/]+")
LEADS_ON = """<!doctype html>
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="../{0}">
<meta http-equiv="refresh" content="0; url=../{0}">
<script>location.replace("../{0}" + location.hash)</script>
<a href="../{0}">This page has moved.</a>
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """MkDocs calls it with all files of the site."""
    moved = [page for page in files.documentation_pages() if FOLDERS.fullmatch(page.src_uri)]
    for page in moved:
        files.append(
            File.generated(config, f"{page.name}/index.html", content=LEADS_ON.format(page.url))
        )
    return files
