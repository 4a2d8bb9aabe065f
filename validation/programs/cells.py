"""Run the cells of a published program in this process: a notebook, a chapter in Markdown, or a script as one cell.

    python validation/programs/cells.py --tab tensorflow d2l-en/chapter_builders-guide/use-gpu.md

Cells run in turn in one namespace; one that raises is counted, and the next goes on. %%writefile and %%bash do what
they do in a notebook, other lines that begin with % or ! are left out. The outcome of each is a line, for run.py.
"""

from __future__ import annotations

import argparse
import ast
import json
import linecache
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

CELL = re.compile(r"^```(?:\{?\.?python|\{code-cell\})[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ABOUT_THE_CELL = re.compile(r"\A(?:---\n.*?^---\n|(?::\w[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
"""What MyST writes at the top of a cell."""
TAB = re.compile(r"^(?:%%tab|#@tab)\s+(.*)\n")
MARK = "#-#-# "
"""What a line with the outcome of a cell begins with."""


def cells_of(path: Path, tab: str) -> list[str]:
    """The program's cells; those of one tab, where a chapter has the same for several frameworks."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return [
            "".join(cell["source"])
            for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "code"
        ]
    if path.suffix != ".md":
        return [text]
    unnamed = (
        "mxnet"
        if re.search(r"^#@tab ", text, re.MULTILINE) and "interact_select" not in text
        else "all"
    )
    # so in d2l-zh; in d2l-en, such a cell is what chooses the tabs
    found = []
    for cell in CELL.findall(text):
        named = TAB.match(cell)
        tabs = [name.strip() for name in named[1].split(",")] if named else [unnamed]
        if tab in tabs or "all" in tabs:
            found.append(ABOUT_THE_CELL.sub("", TAB.sub("", cell)))
    return found


def only_python(cell: str) -> str:
    """The cell without what only a notebook can run; files are written, and shell scripts are run."""
    magic, _, text = cell.partition("\n")
    name, *words = magic.split() or [""]
    if name == "%%writefile":
        Path(words[0]).write_text(text, encoding="utf-8")
    elif name == "%%bash":
        started = subprocess.Popen(["bash", "-c", text])
        if "--bg" not in words:
            started.wait()
    if name.startswith("%%"):
        return ""
    return "\n".join("pass" if line[:1] in ("%", "!") else line for line in cell.splitlines())


def seed(number: int, tab: str) -> None:
    """Set the seeds of Python and NumPy, and that of the framework."""
    import random

    import numpy as np

    random.seed(number)
    np.random.seed(number)
    if tab in ("tensorflow", "jax") or "KERAS_BACKEND" in os.environ:
        from data import keras_of

        keras_of(tab).utils.set_random_seed(number)
    if tab == "pytorch":
        import torch

        torch.manual_seed(number)
    if tab == "mxnet":
        import mxnet as mx

        mx.random.seed(number)
    if tab == "paddle":
        import paddle

        paddle.seed(number)


def print_curves() -> None:
    """Print the last value of each curve that matplotlib draws."""
    from matplotlib.axes import Axes

    def plot(axes: Axes, *args: object, **options: object) -> object:
        lines = draw(axes, *args, **options)
        for line in lines:
            print("curve:", *(f"{float(y):.6f}" for y in line.get_ydata()[-1:]))
        return lines

    draw, Axes.plot = Axes.plot, plot


class Tab:
    """``tab`` as the chapters' notebooks know it: which framework's text they show."""

    def __init__(self, name: str) -> None:
        self.name = name

    def selected(self, *names: str) -> bool:
        return self.name in names

    def interact_select(self, *names: object) -> None:
        pass


def run(path: Path, options: argparse.Namespace) -> int:
    """Run the cells; the exit status says whether one raised."""
    import __main__

    names, tab, failed = vars(__main__), options.tab, 0
    names.update(tab=Tab(tab), __file__=str(path), __name__="__main__", display=print)
    if options.stand_in_data:
        from data import stand_in

        stand_in(tab, options.examples)
    if options.seed is not None:
        seed(options.seed, tab)
    if options.curves:
        print_curves()
    for i, cell in enumerate(cells_of(path, tab)):
        error = ""
        try:
            show(only_python(cell), f"{path.name}[{i}]", names, options.epochs)
        except Exception as raised:
            traceback.print_exc()
            error = " ".join(f"{type(raised).__name__}: {raised}".split())[:200]
            failed = 1
        sys.stderr.flush()
        print(f"\n{MARK}{json.dumps([i, error])}", flush=True)
    return failed


class Epochs(ast.NodeTransformer):
    """Another number of epochs where a cell writes one: ``num_epochs, lr = 500, 1`` and ``max_epochs=30``."""

    def __init__(self, number: int) -> None:
        self.number = number

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=True)
            node.value.elts = [self.instead(name, value) for name, value in pairs]
        else:
            node.value = self.instead(target, node.value)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        node.value = self.instead(ast.Name(node.arg or ""), node.value)
        return self.generic_visit(node)

    def instead(self, name: ast.expr, value: ast.expr) -> ast.expr:
        named = isinstance(name, ast.Name) and name.id in (
            "num_epochs",
            "max_epochs",
            "epochs",
            "EPOCHS",
        )
        return (
            ast.copy_location(ast.Constant(self.number), value)
            if named and is_number(value)
            else value
        )


def is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int


def show(cell: str, name: str, names: dict[str, object], epochs: int | None) -> None:
    """Run a cell; if it ends with an expression, print its value, as a notebook does."""
    linecache.cache[name] = (
        len(cell),
        None,
        cell.splitlines(keepends=True),
        name,
    )  # AutoGraph reads the source
    tree = ast.parse(cell, name)
    if epochs is not None:
        tree = Epochs(epochs).visit(tree)
    last = (
        tree.body.pop()
        if tree.body and isinstance(tree.body[-1], ast.Expr) and is_cell(name)
        else None
    )
    exec(compile(tree, name, "exec", dont_inherit=True), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), names)
        if value is not None:
            print(repr(value))


def is_cell(name: str) -> bool:
    """Whether it is a cell of a notebook or chapter, and no script."""
    return not name.partition("[")[0].endswith(".py")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("program", type=Path, help="a notebook, a chapter or a script")
    add("arguments", nargs=argparse.REMAINDER, help="its own")
    add(
        "--tab",
        default="all",
        help="the framework whose cells a chapter's notebook shows: pytorch, jax …",
    )
    add(
        "--stand-in-data",
        action="store_true",
        help="random numbers in place of data sets that are downloaded",
    )
    add(
        "--examples",
        type=int,
        metavar="N",
        help="how many examples these have to train with (10 512)",
    )
    add(
        "--seed",
        type=int,
        metavar="N",
        help="a seed for random numbers, set before the program begins",
    )
    add(
        "--epochs",
        type=int,
        metavar="N",
        help="epochs to train, in place of the program's own number",
    )
    add("--curves", action="store_true", help="print the last value of each curve that is drawn")
    options = parser.parse_args()
    program = options.program.resolve()
    sys.argv = [str(program), *options.arguments]
    sys.path[0:0] = [str(program.parent)]
    return run(program, options)


if __name__ == "__main__":
    sys.exit(main())
