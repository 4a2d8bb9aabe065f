"""Run tox by a shell command, and print what each environment has cost beside what it may cost.

The seconds of an environment are tox's own: from its start to its end, with three side by side on two
cores, and its installation. The processor time is that of all processes.
"""

import re
import resource
import subprocess
import sys

MAY = {
    "numpy": 210,
    "jax": 165,
    "torch": 140,
    "all": 120,
    "tensorflow": 95,
    "paddle": 95,
    "mxnet": 65,
    "type": 60,
    "core": 45,
    "docs": 25,
    "lint": 10,
}
PROCESSOR_TIME = 650
ENVIRONMENT = re.compile(r"^  (\w+): (?:OK|FAIL|SKIP).*?\(([\d.]+)(?:=| seconds)")


def main(command: str) -> int:
    took = {}
    with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            found = ENVIRONMENT.match(line)
            if found:
                took[found[1]] = float(found[2])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    parts = [f"{name} {seconds:.0f}/{MAY.get(name, 0)} s" for name, seconds in took.items()]
    total = f"processor time {used.ru_utime + used.ru_stime:.0f}/{PROCESSOR_TIME} s"
    over = [name for name, seconds in took.items() if seconds > MAY.get(name, 0)]
    print("; ".join([*parts, total, *([f"over: {', '.join(over)}"] if over else [])]))
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
