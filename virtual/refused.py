"""How a program ends, or an import fails, where a framework cannot have its virtual GPUs."""

import sys
from types import TracebackType


class RefusedExit(SystemExit):
    """Ends the process: a framework cannot have what the process needs. The reason is printed."""


class RefusedImportError(ImportError):
    """A framework cannot have the virtual GPUs that were requested. The reason is printed.

    Uncaught, it ends the program without a traceback.
    """

    def __init__(self, message: str, framework: str) -> None:
        super().__init__(message, name=framework)
        previous = sys.excepthook

        def show(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            if error is not self:
                previous(kind, error, trace)

        sys.excepthook = show
