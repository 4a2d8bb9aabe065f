"""A hook of MkDocs: each notebook becomes a page, with its outputs, beside the file to download."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """MkDocs calls it with all files of the site."""
    for notebook in [
        file for file in files if file.src_uri.endswith(".ipynb") and file.abs_src_path
    ]:
        uri = notebook.src_uri.removesuffix(".ipynb") + ".md"
        files.append(File.generated(config, uri, content=page(Path(str(notebook.abs_src_path)))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """MkDocs calls it with each page: a link to a notebook leads to its page, and in the repository to the file."""
    if page.file.src_uri.startswith("notebooks/"):  # the download stays one
        return markdown
    return re.sub(r"(\]\([^)\s]*notebooks/\w+)\.ipynb\)", r"\1.md)", markdown)


def page(path: Path) -> str:
    """The notebook as Markdown."""
    title, *cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    heading, _, rest = "".join(title["source"]).partition("\n")
    download = f"[Download this notebook]({path.name}){{ .md-button download }}"
    return (
        "\n\n".join(
            [heading, rest.strip(), download, *(part for cell in cells for part in parts(cell))]
        )
        + "\n"
    )


def parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    yield from (shown(output) for output in cell["outputs"])


def shown(output: dict[str, Any]) -> str:
    """What a cell has printed, shown or raised."""
    if output["output_type"] == "stream":
        text = "".join(output["text"])
    elif output["output_type"] == "error":
        text = COLOURS.sub("", "\n".join(output["traceback"]))
    elif "text/html" in output["data"]:
        return "".join(output["data"]["text/html"])
    elif "image/svg+xml" in output["data"]:
        return f"<div>{''.join(output['data']['image/svg+xml'])}</div>"
    else:
        text = "".join(output["data"]["text/plain"])
    return f"```text\n{text.rstrip()}\n```"
