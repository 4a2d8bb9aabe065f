"""Compare what ``xdevice fits`` counts with recorded peaks of GPUs, and with other estimates of them.

    python validation/fits/run.py            # all rows: about a quarter of an hour
    python validation/fits/run.py T5         # those of a model
    python validation/fits/run.py --page     # the page alone, from the figures of earlier runs

Needs torchvision and transformers 4.51.3, for the CPU.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from xdevice.virtual.models import CONTEXTS, MODELS

HERE = Path(__file__).parent
RECORDED, COUNTED, PAGE = HERE / "recorded.csv", HERE / "counted.csv", HERE / "README.md"
MIB = 1 << 20
KEY = ("model", "optimizer", "batch", "gpu")
FIGURES = ("counted", "least", "most", "width")
TABLE = "<!-- the table, by run.py -->\n"


class Row(NamedTuple):
    """A recorded peak without CUDA's context, and what was counted and estimated; in bytes."""

    model: str
    optimizer: str
    batch: int
    gpu: str
    recorded: int
    others: dict[str, int]  # estimates of others
    counted: int
    least: int  # of the counted memory with its kernels, without the context
    most: int
    width: int  # of the range that is printed
    answer: str

    @property
    def is_of_texts(self) -> bool:
        return "/" in self.model or self.model.startswith("T5")

    @property
    def fits_too_little(self) -> bool:
        """Whether *fits* would be said of a card that has less than the recorded peak and the least context."""
        least, most = CONTEXTS[MODELS[self.gpu].capability]
        return self.most + most < self.recorded + least


def measure(row: dict[str, str]) -> dict[str, str | int | float]:
    program = "texts.py" if "/" in row["model"] or row["model"].startswith("T5") else "images.py"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "xdevice", "fits", "--format", "json"]
        command += ["--report", str(report), row["gpu"], str(HERE / program)]
        command += [row["model"], row["optimizer"], row["batch"]]
        # transformers would import the other frameworks, which cannot be measured
        environment = os.environ | {"USE_TF": "NO", "USE_FLAX": "NO"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if not report.exists():
            sys.exit(done.stderr)
        found = json.loads(report.read_text(encoding="utf-8"))
    if not found["gpus"] or "ended by itself" not in found["ended"]:
        sys.exit(f"{' '.join(command)}: {found['reason']}\n{done.stderr}")
    gpu = found["gpus"][0]
    kernels = gpu["range"][0]
    return {
        **{name: row[name] for name in KEY},
        "counted_bytes": gpu["reserved"],
        "least_bytes": gpu["reserved"] + kernels["least"],
        "most_bytes": gpu["reserved"] + kernels["most"],
        "width_bytes": found["needs"]["most"] - found["needs"]["least"],
        "answer": found["answer"],
    }


def read(path: Path) -> dict[tuple[str, ...], dict[str, str]]:
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {tuple(row[name] for name in KEY): row for row in csv.DictReader(file)}


def write(rows: Sequence[dict[str, object]]) -> None:
    with COUNTED.open("w", encoding="utf-8", newline="") as file:
        names = [*KEY, *(f"{name}_bytes" for name in FIGURES), "answer"]
        writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def rows() -> list[Row]:
    counted = read(COUNTED)
    found = []
    for key, row in read(RECORDED).items():
        if key in counted:
            ours = counted[key]
            others = {
                name: int(row[f"{name.lower()}_bytes"]) for name in ("xMem", "DNNMem", "SchedTune")
            }
            figures = [int(ours[f"{name}_bytes"]) for name in FIGURES]
            model, optimizer, batch, gpu = key
            recorded = int(row["recorded_bytes"])
            found.append(
                Row(model, optimizer, int(batch), gpu, recorded, others, *figures, ours["answer"])
            )
    return found


def errors(chosen: Sequence[Row], name: str) -> str:
    """The median, the 90th percentile and the largest of the relative errors."""
    estimates = [row.others.get(name, row.counted) for row in chosen]
    found = sorted(abs(e / row.recorded - 1) for e, row in zip(estimates, chosen, strict=True))
    ninth = found[min(int(0.9 * len(found)), len(found) - 1)]
    return f"{statistics.median(found):.1%}, {ninth:.1%}, {found[-1]:.1%}"


def table(found: Sequence[Row]) -> Iterator[str]:
    groups = {
        "all": list(found),
        "with convolutions": [row for row in found if not row.is_of_texts],
        "transformers": [row for row in found if row.is_of_texts],
    }
    names = ("xdevice", "xMem", "DNNMem", "SchedTune")
    yield f"| error: median, 90 %, largest | {' | '.join(names)} |"
    yield "| --- |" + " --- |" * len(names)
    for words, chosen in groups.items():
        if chosen:
            cells = " | ".join(errors(chosen, name) for name in names)
            yield f"| {len(chosen)} peaks, {words} | {cells} |"
    inside = sum(row.least <= row.recorded <= row.most for row in found)
    width = statistics.median(row.width / row.recorded for row in found)
    fit = sum(row.answer == "fits" for row in found)
    wrong = sum(row.answer == "does not fit" for row in found)
    yield ""
    yield (
        f"The range contains {inside} of the {len(found)} peaks, and is {width:.0%} of the peak wide at the "
        f"median, with the context. All programs ran on their GPU: the answer is *fits* for {fit}, *does not "
        f"fit* for {wrong}, and *cannot be told* for the others. Of cards that have a little less than the "
        f"recorded peak and CUDA's context, {sum(row.fits_too_little for row in found)} would be said to suffice."
    )
    yield ""
    yield "| program | GPU | recorded | counted | | range | answer |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in found:
        error = row.counted / row.recorded - 1
        bounds = f"{row.least / MIB:.0f} to {row.most / MIB:.0f}"
        yield (
            f"| {row.model}, {row.optimizer}, batch {row.batch} | {row.gpu} | {row.recorded / MIB:.0f} | "
            f"{row.counted / MIB:.0f} | {error:+.1%} | {bounds} | {row.answer} |"
        )


def write_page() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(TABLE)
    after = rest.partition(TABLE)[2]
    lines = "\n".join(table(rows()))
    PAGE.write_text(f"{before}{TABLE}\n{lines}\n\n{TABLE}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("word", nargs="?", default="", help="a part of the model's name")
    parser.add_argument("--page", action="store_true", help="run nothing")
    options = parser.parse_args()
    counted: dict[tuple[str, ...], dict[str, object]] = dict(read(COUNTED))
    for key, row in read(RECORDED).items():
        if options.word in row["model"] and not options.page:
            counted[key] = measure(row)
            print(*key, counted[key]["counted_bytes"], flush=True)
            write([counted[key] for key in read(RECORDED) if key in counted])
    write_page()


if __name__ == "__main__":
    main()
