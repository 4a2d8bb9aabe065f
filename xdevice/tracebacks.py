"""Tracebacks in IPython and notebooks, with the caller's frames only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import TracebackType


def rendered(error: BaseException) -> list[str]:
    """The lines that IPython shows for an error.

    They have IPython's format, and only the caller's frames.

    ``error.__traceback__`` keeps all frames, for a debugger and for
    ``traceback.print_exc``.
    """
    shell = sys.modules["IPython"].get_ipython()
    original_traces = [(link, link.__traceback__) for link in _chain(error)]
    modules = {module for _, trace in original_traces for module, _ in _steps(trace)}
    frameworks = {
        module.split(".")[2] for module in modules if module.startswith("xdevice.backends.")
    }
    try:
        for link, trace in original_traces:
            link.__traceback__ = _shortened(trace, frameworks, or_all=link is error)
        lines: list[str] = shell.InteractiveTB.structured_traceback(
            type(error), error, error.__traceback__
        )
    finally:
        for link, trace in original_traces:
            link.__traceback__ = trace
    return lines


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that a traceback shows before it."""
    visited: set[int] = set()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        context = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or context


def _steps(trace: TracebackType | None) -> Iterator[tuple[str, TracebackType]]:
    """Each module, and the step that is in it."""
    while trace is not None:
        yield trace.tb_frame.f_globals.get("__name__") or "", trace
        trace = trace.tb_next


def _shortened(
    trace: TracebackType | None, frameworks: set[str], *, or_all: bool
) -> TracebackType | None:
    """The traceback without this package's frames.

    Frames of a framework that calls its adapter are left out, too.

    Without any other frame: the complete traceback if ``or_all``, else
    ``None``.
    """
    from types import TracebackType

    visible_trace: TracebackType | None = None
    callee = ""  # the module of the frame below
    for module, step in reversed([*_steps(trace)]):
        is_with_statement = module == "contextlib" and _is_ours(callee)  # `with` calls through it
        is_hidden = _is_ours(module) or is_with_statement
        callee = module
        if not is_hidden and (visible_trace or module.partition(".")[0] not in frameworks):
            visible_trace = TracebackType(
                visible_trace, step.tb_frame, step.tb_lasti, step.tb_lineno
            )
    if visible_trace is None and or_all:
        return trace
    return visible_trace


def _is_ours(module: str) -> bool:
    return module == "xdevice" or module.startswith("xdevice.")
