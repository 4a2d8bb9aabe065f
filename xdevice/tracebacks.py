"""Tracebacks in IPython and its notebooks: those of xdevice's errors show the frames of the caller's code."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


def rendered(error: BaseException) -> list[str]:
    """The lines that IPython shows of an error: in its own format, without the frames of this package.

    ``error.__traceback__`` keeps all frames, for a debugger and for ``traceback.print_exc``.
    """
    import sys

    shell = sys.modules["IPython"].get_ipython()
    kept = [(each, each.__traceback__) for each in _chain(error)]
    try:
        for each, trace in kept:
            each.__traceback__ = _shortened(trace)
        lines: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    finally:
        for each, trace in kept:
            each.__traceback__ = trace
    return lines


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that a traceback shows before it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _shortened(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this package; all of them, if it has no others."""
    from types import TracebackType

    steps: list[TracebackType] = []
    each = trace
    while each is not None:
        steps.append(each)
        each = each.tb_next
    shown: TracebackType | None = None
    below = ""  # the module that the frame called
    for step in reversed(steps):
        module = step.tb_frame.f_globals.get("__name__") or ""
        hidden = _is_ours(module) or (module == "contextlib" and _is_ours(below))  # `with` calls us through it
        below = module
        if not hidden:
            shown = TracebackType(shown, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return shown or trace


def _is_ours(module: str) -> bool:
    return module == "xdevice" or module.startswith("xdevice.")
