"""Programs that need the same framework, each in a fork of this process, which has imported it.

The arguments are modules to import. Each line that is read is a program as JSON; the answer is its status.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import warnings

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for name in sys.argv[1:]:
    importlib.import_module(name)
# JAX warns about its threads, which begin when it is first used.
warnings.filterwarnings("ignore", "os.fork.. was called", RuntimeWarning)
for line in sys.stdin:
    program = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
else:
    sys.exit()

answers.close()  # else its end is a warning among what the program prints
signal.alarm(150)  # ends a program that hangs
os.chdir(program["folder"])
os.environ.update(program["environment"])
for descriptor, name in enumerate((os.devnull, program["out"], program["err"])):
    os.dup2(os.open(name, os.O_WRONLY if descriptor else os.O_RDONLY), descriptor)
sys.argv = [program["path"]]
runpy.run_path(program["path"], run_name="__main__")
