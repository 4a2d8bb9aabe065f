"""What a line of the program says: the loops around it, what it moves and whether that is new, and whether it may."""

import ast
import linecache
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from xdevice.kit.escaping import escaped

Lines = tuple[int, int]  # the first and the last line of something
Span = tuple[
    tuple[int, int], tuple[int, int]
]  # a line and a column of it, in bytes, and those of the end

_ALLOW = re.compile(r"#\s*xdevice:\s*allow\b")
_STATEMENTS = (ast.For, ast.AsyncFor, ast.While)
_LOOPS = (
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
# what moves something: methods, and functions their first argument
_METHODS = {"to", "cuda", "gpu", "to_device", "as_in_context", "as_in_ctx", "copyto"}
_FUNCTIONS = {
    *(
        "to_device",
        "device_put",
        "to_tensor",
        "convert_to_tensor",
        "tensor",
        "as_tensor",
        "asarray",
        "array",
    ),
    *("constant", "identity"),
}
_TRAINERS = {
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "train_batch",
    "eval_batch",
}  # the library runs the loop
FACTORIES = {  # what makes a tensor of no data: it can be made anywhere
    *(
        "zeros",
        "ones",
        "empty",
        "full",
        "eye",
        "arange",
        "linspace",
        "zeros_like",
        "ones_like",
        "full_like",
    ),
    *("rand", "randn", "randint", "randperm", "normal", "uniform", "rand_like", "randn_like"),
    *("random", "random_sample", "standard_normal", "integers", "bernoulli", "gaussian"),
}
_COUNTED = {"repeat_interleave", "repeat"}  # whose result is as long as their counts say


class Place(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{shown(self.file)}:{self.line}"

    @property
    def source(self) -> str:
        """The line's text; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()


def shown(file: str) -> str:
    """A file as a person writes it: relative where it is below the working directory."""
    try:
        relative = os.path.relpath(file)
    except ValueError:  # another drive
        return escaped(file)
    return escaped(file if relative.startswith("..") else relative)


@lru_cache(maxsize=256)
def _nodes(file: str) -> list[Any]:
    """All that is in the file; nothing where it cannot be read."""
    try:
        return list(ast.walk(ast.parse("".join(linecache.getlines(file)))))
    except (SyntaxError, ValueError):
        return []


def _at(place: Place, kinds: type[Any] | tuple[type[Any], ...]) -> Iterator[Any]:
    """What is of these kinds and has the line in it."""
    return (
        n
        for n in _nodes(place.file)
        if isinstance(n, kinds) and n.lineno <= place.line <= (n.end_lineno or 0)
    )


@lru_cache(maxsize=4096)
def statement(place: Place) -> Lines:
    """The first and the last line of the statement with that line; of a loop or a block, those of its head."""
    innermost = max(_at(place, ast.stmt), key=lambda n: (n.lineno, n.col_offset), default=None)
    if innermost is None:
        return place.line, place.line
    body = getattr(innermost, "body", None)
    return innermost.lineno, max(
        innermost.lineno, body[0].lineno - 1
    ) if body else innermost.end_lineno


@lru_cache(maxsize=4096)
def is_allowed(place: Place) -> bool:
    """Whether the statement's line, or its last one, ends with ``# xdevice: allow``."""
    return any(
        _ALLOW.search(linecache.getline(place.file, line))
        for line in {*statement(place), place.line}
    )


@lru_cache(maxsize=4096)
def loops(place: Place, span: Span | None = None) -> tuple[Lines, ...]:
    """The first and last lines of the loops around a line, within its function, the innermost first.

    A comprehension is around what is inside it: not around the call that it is an argument of.
    """
    first, _ = _function(place)
    around: list[Any] = [n for n in _at(place, _LOOPS) if n.lineno >= first]
    if span is not None:
        spans = {n: ((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in around}
        around = [
            n
            for n, (b, e) in spans.items()
            if isinstance(n, ast.stmt) or (b <= span[0] and span[1] <= e)
        ]
    return tuple(sorted(((n.lineno, n.end_lineno) for n in around), reverse=True))


def _function(place: Place) -> Lines:
    """The lines of the innermost function around the line; of nothing, at the top of a file."""
    around = _at(place, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    return max(((n.lineno, n.end_lineno) for n in around), default=(0, 0))


class Factory(NamedTuple):
    name: str  # as the program calls it: ``torch.zeros``
    module: str  # that it is of, as far as the file's imports say: ``torch``, ``numpy``
    is_in_line: bool

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=1024)
def factory(place: Place) -> Factory | None:
    """The factory whose result the line moves: ``torch.zeros`` in ``torch.zeros(3).cuda()``, or in the line before."""
    for value in _moved(place):
        call = _maker(place, value)
        if call is not None:
            root = ast.unparse(call).partition(".")[0].partition("(")[0]
            module = _imported(place.file).get(root, "")
            return Factory(ast.unparse(call), module, call.lineno >= statement(place)[0])
    return None


def _maker(place: Place, value: ast.expr, depth: int = 4) -> ast.expr | None:
    """The factory by which a value is made, behind what converts it, scales it or names it."""
    if not depth:
        return None
    if isinstance(value, ast.Name):
        bound = _last_bound(place, value.id)
        return None if bound is None else _maker(place, bound, depth - 1)
    if isinstance(value, ast.BinOp):
        parts = [each for each in (value.left, value.right) if not isinstance(each, ast.Constant)]
        return _maker(place, parts[0], depth - 1) if len(parts) == 1 else None
    if not isinstance(value, ast.Call):
        return None
    if called_name(value) in FACTORIES:
        return value.func
    is_method = isinstance(value.func, ast.Attribute) and isinstance(
        value.func.value, (ast.Call, ast.BinOp)
    )
    inner = (
        value.func.value
        if is_method and isinstance(value.func, ast.Attribute)
        else next(iter(value.args), None)
    )
    return None if inner is None else _maker(place, inner, depth - 1)


def _last_bound(place: Place, name: str) -> ast.expr | None:
    """What the name was last bound to before the line, in the same turn of the innermost loop, or in the function."""
    found: list[Any] = [
        node
        for node in _before(place, ast.Assign)
        if [each.id for each in node.targets if isinstance(each, ast.Name)] == [name]
    ]
    changed = [
        n
        for n in _before(place, ast.AugAssign)
        if isinstance(n.target, ast.Name) and n.target.id == name
    ]
    return max(found, key=lambda node: node.lineno).value if found and not changed else None


@lru_cache(maxsize=256)
def _imported(file: str) -> dict[str, str]:
    """The first part of the module that a name was imported from: ``np``: ``numpy``."""
    names: dict[str, str] = {}
    for node in _nodes(file):
        if isinstance(node, ast.Import):
            names |= {
                (each.asname or each.name).partition(".")[0]: each.name.partition(".")[0]
                for each in node.names
            }
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {
                each.asname or each.name: node.module.partition(".")[0] for each in node.names
            }
    return names


def is_literal(place: Place) -> bool:
    """Whether the line moves numbers that it spells, or makes by a comprehension: ``torch.tensor([a, b])``."""
    spelt = (ast.List, ast.Tuple, ast.ListComp)
    return any(
        isinstance(value, spelt) or (isinstance(value, ast.BinOp) and isinstance(value.left, spelt))
        for value in _moved(place)
    )


def is_counted(place: Place) -> bool:
    """Whether the line repeats elements as often as a tensor says."""
    return any(called_name(call) in _COUNTED for call in _at(place, ast.Call))


def precedes_loop(place: Place) -> bool:
    """Whether the loop around the line has another loop in it, after the line: the line is not part of its turns."""
    around = next(iter(loops(place)), None)
    if around is None:
        return False
    inside = _function(place)
    later = (
        n
        for n in _nodes(place.file)
        if isinstance(n, _STATEMENTS) and place.line < n.lineno <= around[1]
    )
    return any(
        _function(Place(place.file, n.lineno)) == inside and not _is_update(n) for n in later
    )


def trains(place: Place) -> bool:
    """Whether the line leaves the loop to a library: ``model.fit(x, y)``."""
    calls = (
        node for each in _statements(place) for node in ast.walk(each) if isinstance(node, ast.Call)
    )
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr in _TRAINERS for call in calls
    )


def builds(place: Place) -> bool:
    """Whether the line moves what a class makes, a layer say: ``Linear(3, 4).to(device)``."""
    names = [called_name(value) for value in _moved(place) if isinstance(value, ast.Call)]
    return any(name[:1].isupper() and not name.endswith(("Tensor", "Variable")) for name in names)


def moves(place: Place) -> bool:
    return any(True for _ in _moved(place))


@lru_cache(maxsize=1024)
def unchanged(place: Place) -> str:
    """What the line moves although the loop around it does not bind it; empty if there is none, or it is not known.

    In a function without a loop it is an attribute, or a name that the function does not bind.
    """
    around = loops(place)
    bound = set(_bound(place.file, *(around[0] if around else _function(place))))
    for value in _moved(place):
        calls = any(isinstance(node, ast.Call) for node in ast.walk(value))
        roots = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        if not around and isinstance(value, ast.Attribute):
            roots.discard("self")
        if not calls and not isinstance(value, ast.Constant) and roots.isdisjoint(bound):
            return ast.unparse(value)
    return ""


def adds_up(place: Place) -> bool:
    """Whether the line is ``total += …``."""
    return any(
        isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
        for node in _statements(place)
    )


def decides(place: Place) -> bool:
    """Whether the line is the condition of an ``if``, a ``while`` or an ``assert``, and no more than that."""
    found = [
        node for node in _statements(place) if isinstance(node, (ast.If, ast.While, ast.Assert))
    ]
    return any(isinstance(node, ast.Assert) or node.body[0].lineno > node.lineno for node in found)


def is_conditional(place: Place) -> bool:
    """Whether an ``if`` in the loop, or in the function, decides whether the line runs: not each turn need run it."""
    return any(
        node.test.end_lineno < place.line <= node.end_lineno for node in _before(place, ast.If)
    )


def follows_loop(place: Place) -> bool:
    """Whether a loop of the same function, and of the same turn of a loop around both, has ended before the line.

    A loop over parameters does not count: an update by hand is part of a step.
    """
    return any(n.end_lineno < place.line and not _is_update(n) for n in _before(place, _STATEMENTS))


def _is_update(loop: Any) -> bool:
    return "param" in ast.unparse(getattr(loop, "iter", loop)).lower()


def _before(place: Place, kinds: type[Any] | tuple[type[Any], ...]) -> Iterator[Any]:
    """What is of these kinds and begins before the line, in the same function, and in the innermost loop if any."""
    inside = _function(place)
    first, _ = next(iter(loops(place)), inside)
    found = (
        n for n in _nodes(place.file) if isinstance(n, kinds) and first <= n.lineno < place.line
    )
    return (n for n in found if _function(Place(place.file, n.lineno)) == inside)


def _statements(place: Place) -> Iterator[Any]:
    first, _ = statement(place)
    return (n for n in _nodes(place.file) if isinstance(n, ast.stmt) and n.lineno == first)


def _moved(place: Place) -> Iterator[ast.expr]:
    """The expressions that calls in the line move."""
    for call in _at(place, ast.Call):
        name = called_name(call)
        is_function = (
            name in _FUNCTIONS and len(call.args) > 1
        )  # ``xdevice.to_device(x, d)``, and no method of x
        if isinstance(call.func, ast.Attribute) and name in _METHODS and not is_function:
            yield call.func.value
        elif name in _FUNCTIONS and call.args:
            yield call.args[0]


def called_name(call: ast.Call) -> str:
    """The name of the function or method, without what it is an attribute of."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    if isinstance(call.func, ast.Name):
        return call.func.id
    return ""


def _bound(file: str, first: int, last: int) -> Iterator[str]:
    """The names that lines bind or change: arguments, and what is in the target of an assignment."""
    for node in _nodes(file):
        if not first <= getattr(node, "lineno", 0) <= last:
            continue
        if isinstance(node, ast.arg):
            yield node.arg
        if isinstance(node, (ast.Name, ast.Subscript, ast.Attribute)) and isinstance(
            node.ctx, ast.Store
        ):
            yield from (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
