"""When does a GPU pay? The experiments of the lesson, timed on the CPU and on the GPU.

    XDEVICE_BACKEND=torch python examples/cpu_or_gpu.py          all of them, at a tenth of their size
    python examples/cpu_or_gpu.py large transfer --scale 1       two of them, at full size

Each time is the median of several turns, with its quartiles. The experiments show that large
operations are far faster on a GPU and tiny ones are not, that copying to the GPU and back each time
costs more than computing there saves, and that many small transfers cost more than one large one.
They are the experiments of ``xdevice bench``, which also compares frameworks, counts bytes, and plots.
"""

import argparse

import _needed  # noqa: F401  (says what is not installed)

import xdevice
from xdevice.tools.experiments import find, rows, setting, title, too_busy
from xdevice.tools.experiments.work import named

LESSON = ["elementwise", "large", "tiny", "log", "transfer", "copies"]


def main():
    parser = argparse.ArgumentParser(
        description="Time the same work on the CPU and on the GPU, under any framework."
    )
    parser.add_argument(
        "experiments", nargs="*", metavar="EXPERIMENT", help=f"{', '.join(LESSON)}; all if none"
    )
    parser.add_argument(
        "--scale", type=float, default=0.1, help="1 is the lesson's own size (default %(default)s)"
    )
    parser.add_argument(
        "--device", help="what to compare with the CPU (default: the first GPU, else the CPU)"
    )
    options = parser.parse_args()
    experiments = [find(name) for name in options.experiments or LESSON]

    where = setting(options.device, options.scale)
    print(f"{xdevice.backend()}; the device is {named(where.device)}; scale {options.scale:g}")
    if where.device.kind == "cpu":
        print("there is no GPU: the CPU is compared with itself")
    for experiment in experiments:
        print(f"\n{title(experiment)}")
        found = rows(experiment, where)
        for row in found:
            each, low, high = (1e6 * row[f"seconds_{word}"] for word in ("each", "low", "high"))
            speed = f"{row['ratio_to_cpu']:8.2f} × the CPU's speed"
            print(
                f"  {row['label']:46} {row['times']:6} × {each:10.1f} µs ({low:.1f} to {high:.1f})  {speed}"
            )
        if too_busy(found):
            print(f"  {too_busy(found)}")


if __name__ == "__main__":
    try:
        main()
    except xdevice.XDeviceError as error:
        raise SystemExit(f"cpu_or_gpu.py: {error}") from error
    except Exception as error:
        if not xdevice.is_out_of_memory(error):
            raise
        raise SystemExit("cpu_or_gpu.py: out of memory; give a smaller --scale") from error
