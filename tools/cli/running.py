"""Running a program within the process of a command that observes it."""

import os
import runpy
import sys
from io import open_code
from types import ModuleType

# A traceback of the program's error is shown without the frames of these files.
_RUNNERS = (__file__, runpy.__file__, "<frozen runpy>")


def run_program() -> BaseException | None:
    """Run the program in ``argv``, and return the exception that ended it, if any."""
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            sys.path[0] = os.getcwd()
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        elif sys.argv[0] == "-c":
            sys.path[0] = ""
            exec(compile(sys.argv.pop(1), "<string>", "exec"), vars(_new_main()))
        else:
            script = os.path.abspath(sys.argv[0])
            if os.path.isdir(script):
                script = os.path.join(script, "__main__.py")
            sys.path[0] = os.path.dirname(os.path.realpath(script))
            program = _new_main()
            program.__file__ = script
            with open_code(script) as file:
                code = compile(file.read(), script, "exec")
            exec(code, vars(program))
    except BaseException as error:  # also KeyboardInterrupt: it is raised after the report
        return error
    return None


def _new_main() -> ModuleType:
    sys.modules["__main__"] = program = ModuleType("__main__")
    return program


def show_error(error: BaseException) -> None:
    """Show the error as Python would, without the frames that ran the program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _RUNNERS:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.excepthook(type(error), error, trace)
