"""Calls that may end the process: each runs in one of its own, under the same framework and virtual GPUs.

    python -m xdevice.testing.own_process torch gpu:1

asks for more memory than any machine has, and prints what came of it.
"""

import os
import subprocess
import sys


def huge_allocation(backend: str, device: str) -> str:
    """What a process prints that asks for 256 TB: ``out of memory`` if xdevice recognises the error, else the error.

    A process that was killed prints nothing; then this says how it ended.
    """
    command = [sys.executable, "-m", "xdevice.testing.own_process", backend, device]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)
    if done.returncode:
        return f"the process ended with status {done.returncode}: {done.stderr.strip()[-500:]}"
    return done.stdout.strip().rpartition("\n")[2]


def main(backend: str, device: str) -> str:
    from xdevice import is_out_of_memory, ones, to_numpy, using

    with using(backend):
        try:
            to_numpy(ones((2**22, 2**24), dtype="float32", device=device))
        except Exception as error:
            return "out of memory" if is_out_of_memory(error) else repr(error)
    return "no error"


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
