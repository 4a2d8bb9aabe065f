"""Automatic parallelism on two GPUs.

The same products on one GPU, on the other, and on both at once; then computing while copying.

    XDEVICE_BACKEND=torch python examples/auto_parallel.py             at a tenth of the lesson's size
    python examples/auto_parallel.py --scale 1                         at its full size
    xdevice run --backend all examples/auto_parallel.py                every framework
    xdevice bench parallel overlap                                     the same work as a table

Each measurement waits for both devices, so each time is that of the work and not of queueing it. It
is the median of several turns, with its quartiles. On a machine
with fewer than two GPUs the script uses two virtual ones, which share the
cores, so they run in parallel only as far as the cores do. The script is the same on real GPUs.
"""

import argparse

import _needed  # noqa: F401  (says what is not installed)
from _gpus import two_gpus

import xdevice
from xdevice import machine
from xdevice.tools.experiments import find, rows, setting, title, too_busy


def timed(name, where):
    """The times of each part of an experiment, by its label."""
    print(title(find(name)))
    found = rows(find(name), where)
    for row in found:
        each, low, high = (1e3 * row[f"seconds_{word}"] for word in ("each", "low", "high"))
        print(
            f"  {row['label']}, {row['times']} times: {each:.4f} ms each ({low:.4f} to {high:.4f})"
        )
    if too_busy(found):
        print(f"  {too_busy(found)}")
    return {row["label"]: row for row in found}


def compare(times, one, other):
    print(
        f"  {other} takes {times[other]['seconds_each'] / times[one]['seconds_each']:.2f} of the time of {one}"
    )


def main():
    parser = argparse.ArgumentParser(
        description="Time two GPUs at once, and copies beside computing."
    )
    parser.add_argument(
        "--scale", type=float, default=0.1, help="1 is the lesson's own size (default %(default)s)"
    )
    options = parser.parse_args()
    first, _ = two_gpus()
    if xdevice.properties(first)["virtual"]:
        print(
            f"virtual GPUs share this machine's {machine.usable_threads()} threads: no more than these is parallel"
        )
    where = setting(first, options.scale)
    compare(timed("parallel", where), "as many on each, in turn", "as many on each, at once")
    compare(timed("overlap", where), "computed, then fetched", "computed and fetched, overlapped")


if __name__ == "__main__":
    try:
        main()
    except xdevice.XDeviceError as error:
        raise SystemExit(f"auto_parallel.py: {error}") from error
