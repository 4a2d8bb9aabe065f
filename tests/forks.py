"""Forks of a process that has imported modules, its arguments; each becomes another Python.

Each line that is read is what a fork is given, as JSON. The answer is its exit status and its
processor time.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import sys
import warnings
from pathlib import Path
from types import ModuleType


def become(arguments, folder, environment, files, forgotten):
    """Run what Python would run there, with files for its streams, and with these variables."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also if tests run in the background
    for name in forgotten:
        sys.modules.pop(name, None)
    os.chdir(folder)
    for name, text in environment.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
    for descriptor, name in enumerate(files):
        os.dup2(os.open(name, os.O_WRONLY if descriptor else os.O_RDONLY), descriptor)
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding=encoding)
    kind, *words = arguments
    path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[0:1] = [folder if kind == "-m" else os.path.dirname(kind), *path]
    if kind == "-m":
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        return
    sys.modules["__main__"] = main = ModuleType("__main__")
    if kind == "-c":
        sys.argv = ["-c", *words[1:]]
        code = compile(words[0], "<string>", "exec")
    else:
        sys.argv = arguments
        main.__file__ = kind
        code = compile(Path(kind).read_text("utf-8"), kind, "exec")
    exec(code, vars(main))


answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for name in sys.argv[1:]:
    importlib.import_module(name)
# JAX warns about its threads, which begin when it is first used.
warnings.filterwarnings("ignore", "os.fork.. was called", RuntimeWarning)
gc.freeze()  # at its end, no fork goes through all that was there before it
while line := sys.stdin.readline():
    child = os.fork()
    if child == 0:
        break
    _, status, used = os.wait4(child, 0)
    print(
        os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, file=answers, flush=True
    )
else:
    sys.exit()

answers.close()  # else its end is a warning among what the program prints
request = json.loads(line)
signal.alarm(request.pop("seconds"))  # ends a program that hangs
become(**request)
