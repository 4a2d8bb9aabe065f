"""Running a program once: `emulate`, `watch` and `fits` give it what a shell's Python would."""

import os
import runpy
import subprocess
import sys
from io import open_code
from types import ModuleType

from xdevice.backends.kit import keras
from xdevice.contract import Request
from xdevice.errors import NotSupportedError
from xdevice.framework.choosing import backend
from xdevice.framework.registry import entry_points_of
from xdevice.hardware.virtual import GROUP
from xdevice.tools.cli.program import Program, imported_by
from xdevice.virtual import children, why_none
from xdevice.virtual.request import of_environment, to_environment

# A traceback of the program's error is shown without the frames of these files.
_RUNNERS = (__file__, runpy.__file__, "<frozen runpy>")


def prepare(program: Program, framework: str | None, request: Request | None) -> list[str]:
    """Set the program's environment, and return the frameworks that it is known to use.

    Raises an error if one of these cannot have the virtual GPUs of the request,
    or else those that the environment asks for.
    """
    if request is not None:
        children.give_to_program(request)
    if framework is not None:
        owner = backend(framework)
        name = str(owner)
        # those of the group have some: they are not imported to find out
        if request is not None and name not in entry_points_of(GROUP):
            reason = why_none(owner)
            if reason:
                raise NotSupportedError(reason)
        os.environ["XDEVICE_BACKEND"] = name
        keras.choose(name)
        frameworks = [name]
    else:
        frameworks = imported_by(program.file) if program.file is not None else []
    if of_environment().number:
        from xdevice.tools.cli.probe import check_virtual_gpus  # with what it needs, 20 ms

        check_virtual_gpus(frameworks)
    if request is not None:
        to_environment(request._replace(required=tuple(frameworks) or ("all",)))
    os.environ.update(program.search_path(sys.executable))
    return frameworks


def become(command: list[str]) -> int:
    """Become the program: its output, its signals and its exit status are as without xdevice."""
    if os.name != "nt":  # the shell of Windows would not wait for a process that is replaced
        sys.stdout.flush()
        os.execv(command[0], command)
    return subprocess.call(command)


def run_program() -> BaseException | None:
    """Run the program in ``argv`` in this process, and return the exception that ended it, if any."""
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
