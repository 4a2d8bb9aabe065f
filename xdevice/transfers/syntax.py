"""What the source says of a line: the loops around it, what it moves, and whether it may copy."""

import ast
import linecache
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from xdevice.escaping import escaped

Lines = tuple[int, int]  # the first and the last line of something
Position = tuple[int, int]  # a line, and a column in bytes
Span = tuple[Position, Position]  # the beginning and the end
Node: TypeAlias = Any  # an ast.AST of a class that has lines

_ALLOW = re.compile(r"#\s*xdevice:\s*allow\b")
_LOOP_STATEMENTS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = _LOOP_STATEMENTS + _COMPREHENSIONS

# methods that move the object they belong to
_MOVING_METHODS = {"to", "cuda", "gpu", "to_device", "as_in_context", "as_in_ctx", "copyto"}
# functions that move their first argument
_MOVING_FUNCTION_NAMES = (
    "to_device device_put to_tensor convert_to_tensor tensor as_tensor asarray array constant "
    "identity"
)
_MOVING_FUNCTIONS = set(_MOVING_FUNCTION_NAMES.split())
# methods of libraries that run the loop
_TRAINERS = {"fit", "evaluate", "predict", "train_on_batch", "train_batch", "eval_batch"}
# functions that make a tensor without data: it can be made on any device
_FACTORY_NAMES = (
    "zeros ones empty full eye arange linspace zeros_like ones_like full_like rand randn randint "
    "randperm normal uniform rand_like randn_like random random_sample standard_normal integers "
    "bernoulli gaussian"
)
FACTORIES = set(_FACTORY_NAMES.split())
_MAX_SOURCES = 4  # expressions between a value and the factory that makes it
# functions whose result is as long as their argument's values say
_COUNTED = {"repeat_interleave", "repeat"}


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


def in_library(file: str, line: int) -> str:
    """The line of a library, such as ``transformers/models/bert/modeling_bert.py:312``."""
    parts = Path(file).parts
    folders = [number for number, part in enumerate(parts, 1) if part.endswith("-packages")]
    return f"{escaped('/'.join(parts[max(folders, default=0) :]))}:{line}"


@lru_cache(maxsize=256)
def _nodes(file: str) -> list[Node]:
    """All nodes of the file; empty where it cannot be read."""
    try:
        return list(ast.walk(ast.parse("".join(linecache.getlines(file)))))
    except (SyntaxError, ValueError):
        return []


def _nodes_at(place: Place, kinds: type[Any] | tuple[type[Any], ...]) -> Iterator[Node]:
    """The nodes of these kinds that contain the line."""
    for node in _nodes(place.file):
        if isinstance(node, kinds) and node.lineno <= place.line <= (node.end_lineno or 0):
            yield node


@lru_cache(maxsize=4096)
def statement(place: Place) -> Lines:
    """The first and the last line of the statement with that line.

    Of a loop or another block they are those of its head.
    """
    statements = _nodes_at(place, ast.stmt)
    innermost = max(statements, key=lambda node: (node.lineno, node.col_offset), default=None)
    if innermost is None:
        return place.line, place.line
    body = getattr(innermost, "body", None)
    if not body:
        return innermost.lineno, innermost.end_lineno
    return innermost.lineno, max(innermost.lineno, body[0].lineno - 1)


@lru_cache(maxsize=4096)
def is_allowed(place: Place) -> bool:
    """Whether the line, or its statement's first or last one, ends with ``# xdevice: allow``."""
    lines = {*statement(place), place.line}
    return any(_ALLOW.search(linecache.getline(place.file, line)) for line in lines)


@lru_cache(maxsize=4096)
def loops(place: Place, span: Span | None = None) -> tuple[Lines, ...]:
    """The first and last lines of the loops around a line, within its function.

    The innermost is first. A comprehension is around what is inside it, and
    not around the call that it is an argument of.
    """
    function_start, _ = _function(place)
    nodes = [node for node in _nodes_at(place, _LOOPS) if node.lineno >= function_start]
    if span is not None:
        nodes = [node for node in nodes if isinstance(node, ast.stmt) or _encloses(node, span)]
    return tuple(sorted(((node.lineno, node.end_lineno) for node in nodes), reverse=True))


def may_end_loop(place: Place) -> bool:
    """Whether the line is in the condition of a ``while``, or of an ``if`` that ends a loop."""
    for node in _nodes_at(place, (ast.While, ast.If)):
        is_condition = node.test.lineno <= place.line <= node.test.end_lineno
        ends = isinstance(node, ast.While) or any(
            isinstance(each, (ast.Break, ast.Return)) for each in ast.walk(node)
        )
        if is_condition and ends:
            return True
    return False


def _encloses(node: Node, span: Span) -> bool:
    start, end = span
    node_start = node.lineno, node.col_offset
    node_end = node.end_lineno, node.end_col_offset
    return node_start <= start and end <= node_end


def _function(place: Place) -> Lines:
    """The lines of the innermost function around the line; zeros at the top of a file."""
    functions = _nodes_at(place, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    return max(((node.lineno, node.end_lineno) for node in functions), default=(0, 0))


class Factory(NamedTuple):
    """A function that makes a tensor."""

    name: str
    """As the program calls it: ``torch.zeros``."""
    module: str
    """The module that it is of, as far as the file's imports say: ``torch``, ``numpy``."""
    is_in_line: bool

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=1024)
def factory(place: Place) -> Factory | None:
    """The factory whose result the line moves: ``torch.zeros`` in ``torch.zeros(3).cuda()``.

    The call may be in a line before it.
    """
    for value in _moved_values(place):
        function = _factory_of(place, value)
        if function is not None:
            name = ast.unparse(function)
            root = name.partition(".")[0].partition("(")[0]
            module = _imported_modules(place.file).get(root, "")
            return Factory(name, module, is_in_line=function.lineno >= statement(place)[0])
    return None


def _factory_of(place: Place, value: ast.expr) -> ast.expr | None:
    """The factory that makes a value, which the program may then convert, scale or name."""
    source: ast.expr | None = value
    for _ in range(_MAX_SOURCES):
        if source is None:
            return None
        if isinstance(source, ast.Call) and called_name(source) in FACTORIES:
            return source.func
        source = _source_of(place, source)
    return None


def _source_of(place: Place, value: ast.expr) -> ast.expr | None:
    """The expression that a value is named for, scaled from, or converted from."""
    if isinstance(value, ast.Name):
        return _last_assigned(place, value.id)
    if isinstance(value, ast.BinOp):
        operands = [
            operand
            for operand in (value.left, value.right)
            if not isinstance(operand, ast.Constant)
        ]
        return operands[0] if len(operands) == 1 else None
    if not isinstance(value, ast.Call):
        return None
    function = value.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, (ast.Call, ast.BinOp)):
        return function.value
    return value.args[0] if value.args else None


def _last_assigned(place: Place, name: str) -> ast.expr | None:
    """The value that was last assigned to the name before the line.

    Only the same turn of the innermost loop counts, or the function if there
    is no loop.
    """
    for node in _nodes_before(place, ast.AugAssign):
        if isinstance(node.target, ast.Name) and node.target.id == name:
            return None
    assignments: list[Node] = []
    for node in _nodes_before(place, ast.Assign):
        if [target.id for target in node.targets if isinstance(target, ast.Name)] == [name]:
            assignments.append(node)
    if not assignments:
        return None
    last: ast.Assign = max(assignments, key=lambda node: node.lineno)
    return last.value


@lru_cache(maxsize=256)
def _imported_modules(file: str) -> dict[str, str]:
    """The first part of the module of each imported name: ``np``: ``numpy``."""
    modules: dict[str, str] = {}
    for node in _nodes(file):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = (alias.asname or alias.name).partition(".")[0]
                modules[name] = alias.name.partition(".")[0]
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                modules[alias.asname or alias.name] = node.module.partition(".")[0]
    return modules


def is_literal(place: Place) -> bool:
    """Whether the line moves a literal or a list comprehension: ``torch.tensor([a, b])``."""
    literals = (ast.List, ast.Tuple, ast.ListComp)
    for value in _moved_values(place):
        literal = value.left if isinstance(value, ast.BinOp) else value
        if isinstance(literal, literals):
            return True
    return False


def is_counted(place: Place) -> bool:
    """Whether the line repeats elements as often as a tensor says."""
    return any(called_name(call) in _COUNTED for call in _nodes_at(place, ast.Call))


def precedes_loop(place: Place) -> bool:
    """Whether the loop around the line has another loop in it, after the line.

    The line is not part of the other loop's turns.
    """
    enclosing_loops = loops(place)
    if not enclosing_loops:
        return False
    _, last = enclosing_loops[0]
    function = _function(place)
    for node in _nodes(place.file):
        if not isinstance(node, _LOOP_STATEMENTS) or _is_update(node):
            continue
        is_later = place.line < node.lineno <= last
        if is_later and _function(Place(place.file, node.lineno)) == function:
            return True
    return False


def trains(place: Place) -> bool:
    """Whether the line leaves the loop to a library: ``model.fit(x, y)``."""
    for node in _statements(place):
        calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        methods = [call.func.attr for call in calls if isinstance(call.func, ast.Attribute)]
        if not _TRAINERS.isdisjoint(methods):
            return True
    return False


def builds(place: Place) -> bool:
    """Whether the line moves what a class makes, such as ``Linear(3, 4).to(device)``."""
    calls = [value for value in _moved_values(place) if isinstance(value, ast.Call)]
    return any(_is_class(called_name(call)) for call in calls)


def _is_class(name: str) -> bool:
    """Whether it is named like a class, other than that of a tensor."""
    return name[:1].isupper() and not name.endswith(("Tensor", "Variable"))


def moves(place: Place) -> bool:
    """Whether the line asks for a copy."""
    return any(True for _ in _moved_values(place))


@lru_cache(maxsize=1024)
def unchanged(place: Place) -> str:
    """What the line moves although the loop around it does not assign it.

    Empty if there is none, or it is not known. In a function without a loop it
    is an attribute, or a name that the function does not assign.
    """
    enclosing_loops = loops(place)
    first, last = enclosing_loops[0] if enclosing_loops else _function(place)
    assigned = set(_assigned_names(place.file, first, last))
    for value in _moved_values(place):
        nodes = list(ast.walk(value))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        if not enclosing_loops and isinstance(value, ast.Attribute):
            names.discard("self")
        calls = any(isinstance(node, ast.Call) for node in nodes)
        if not calls and not isinstance(value, ast.Constant) and names.isdisjoint(assigned):
            return ast.unparse(value)
    return ""


def adds_up(place: Place) -> bool:
    """Whether the line is ``total += …``."""
    return any(
        isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
        for node in _statements(place)
    )


def decides(place: Place) -> bool:
    """Whether the line is just the condition of an ``if``, a ``while`` or an ``assert``."""
    for node in _statements(place):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, (ast.If, ast.While)) and node.body[0].lineno > node.lineno:
            return True
    return False


def is_conditional(place: Place) -> bool:
    """Whether an ``if`` in the loop, or in the function, decides whether the line runs."""
    return any(
        node.test.end_lineno < place.line <= node.end_lineno
        for node in _nodes_before(place, ast.If)
    )


def follows_loop(place: Place) -> bool:
    """Whether a loop of the same function has ended before the line.

    Within another loop it has to be in the same turn. A loop over parameters
    does not count: an update by hand is part of a step.
    """
    return any(
        node.end_lineno < place.line and not _is_update(node)
        for node in _nodes_before(place, _LOOP_STATEMENTS)
    )


def _is_update(loop: Node) -> bool:
    """Whether the loop is over parameters."""
    if isinstance(loop, ast.While):
        source = ast.unparse(loop)
    else:
        source = ast.unparse(loop.iter)
    return "param" in source.lower()


def _nodes_before(place: Place, kinds: type[Any] | tuple[type[Any], ...]) -> Iterator[Node]:
    """The nodes of these kinds that begin before the line, in the same function.

    If there is a loop around the line, they are those of the innermost one.
    """
    function = _function(place)
    enclosing_loops = loops(place)
    first, _ = enclosing_loops[0] if enclosing_loops else function
    for node in _nodes(place.file):
        if not isinstance(node, kinds) or not first <= node.lineno < place.line:
            continue
        if _function(Place(place.file, node.lineno)) == function:
            yield node


def _statements(place: Place) -> Iterator[Node]:
    """The statements that begin in the first line of the line's statement."""
    first, _ = statement(place)
    for node in _nodes(place.file):
        if isinstance(node, ast.stmt) and node.lineno == first:
            yield node


def _moved_values(place: Place) -> Iterator[ast.expr]:
    """The expressions that calls in the line move."""
    for call in _nodes_at(place, ast.Call):
        name = called_name(call)
        # ``xdevice.to_device(x, device)`` is not a method of ``xdevice``
        is_function = name in _MOVING_FUNCTIONS and len(call.args) > 1
        is_method = isinstance(call.func, ast.Attribute) and not is_function
        if is_method and name in _MOVING_METHODS:
            yield call.func.value
        elif name in _MOVING_FUNCTIONS and call.args:
            yield call.args[0]


def called_name(call: ast.Call) -> str:
    """The name of the function or method, without what it is an attribute of."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    if isinstance(call.func, ast.Name):
        return call.func.id
    return ""


def _assigned_names(file: str, first: int, last: int) -> Iterator[str]:
    """The names that lines assign or change: arguments, and targets such as ``x`` in ``x[0]``."""
    for node in _nodes(file):
        if not first <= getattr(node, "lineno", 0) <= last:
            continue
        if isinstance(node, ast.arg):
            yield node.arg
        is_target = isinstance(node, (ast.Name, ast.Subscript, ast.Attribute))
        if is_target and isinstance(node.ctx, ast.Store):
            yield from (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name))
