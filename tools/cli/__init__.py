"""The command line: ``xdevice info``, ``doctor``, ``run``, ``bench``, ``launch``, ``virtual``."""

import io
import sys
from collections.abc import Sequence
from importlib import import_module

from xdevice.tools.cli.arguments import parse
from xdevice.tools.cli.parser import fail
from xdevice.errors import XDeviceError


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a character
    try:
        options = parse(list(sys.argv[1:] if argv is None else argv))
        # The commands import rich and psutil; --version and --help do without them.
        command = import_module(f"xdevice.tools.cli.{options.name}")
        return int(command.main(options))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("rich", "psutil"):
            raise
        return fail(f"the command line needs {package}; pip install rich psutil")
    except XDeviceError as error:
        return fail(str(error))
    except BrokenPipeError:  # the reader, such as head or less, has closed the pipe
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return 130
