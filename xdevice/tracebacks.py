"""Tracebacks in IPython and its notebooks: those of xdevice's errors show the frames of the caller's code."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


def rendered(error: BaseException) -> list[str]:
    """The lines that IPython shows of an error: in its own format, with the frames of the caller's code alone.

    ``error.__traceback__`` keeps all frames, for a debugger and for ``traceback.print_exc``.
    """
    import sys

    shell = sys.modules["IPython"].get_ipython()
    kept = [(each, each.__traceback__) for each in _chain(error)]
    modules = {module for _, trace in kept for module, _ in _steps(trace)}
    frameworks = {
        module.split(".")[2] for module in modules if module.startswith("xdevice.backends.")
    }
    try:
        for each, trace in kept:
            each.__traceback__ = _shortened(trace, frameworks, whole=each is error)
        lines: list[str] = shell.InteractiveTB.structured_traceback(
            type(error), error, error.__traceback__
        )
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


def _steps(trace: TracebackType | None) -> Iterator[tuple[str, TracebackType]]:
    """Each module, and the step that is in it."""
    while trace is not None:
        yield trace.tb_frame.f_globals.get("__name__") or "", trace
        trace = trace.tb_next


def _shortened(
    trace: TracebackType | None, frameworks: set[str], *, whole: bool
) -> TracebackType | None:
    """The traceback without the frames of this package, and without those of a framework that has called its adapter.

    If nothing is left, all of them where ``whole``, else none.
    """
    from types import TracebackType

    shown: TracebackType | None = None
    below = ""  # the module that the frame called
    for module, step in reversed([*_steps(trace)]):
        hidden = _is_ours(module) or (
            module == "contextlib" and _is_ours(below)
        )  # `with` calls us through it
        below = module
        if not hidden and (shown or module.partition(".")[0] not in frameworks):
            shown = TracebackType(shown, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return shown or (trace if whole else None)


def _is_ours(module: str) -> bool:
    return module == "xdevice" or module.startswith("xdevice.")
