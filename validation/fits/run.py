"""Compare what ``xdevice fits`` counts with recorded peaks of GPUs, and with other estimates of them.

    python validation/fits/run.py             # the rows of recorded.csv: about four minutes
    python validation/fits/run.py --by-rule   # those of recorded_by_rule.csv: about half an hour
    python validation/fits/run.py T5          # those of a model
    python validation/fits/run.py --page      # the page alone, from the figures of earlier runs

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
PAGE = HERE / "README.md"
MIB = 1 << 20
KEY = ("model", "optimizer", "batch", "gpu")
FIGURES = ("counted", "least", "most", "width")
NAMES = ("xdevice", "xMem", "DNNMem", "SchedTune")


class Choice(NamedTuple):
    """Rows of the study, what was counted for them, and where the page has their tables."""

    recorded: Path
    counted: Path
    mark: str


FIRST = Choice(HERE / "recorded.csv", HERE / "counted.csv", "<!-- the table, by run.py -->\n")
BY_RULE = Choice(
    HERE / "recorded_by_rule.csv",
    HERE / "counted_by_rule.csv",
    "<!-- the tables of the rule, by run.py -->\n",
)


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
    ran: bool = True  # on its GPU; otherwise, the recorded peak is that until memory ran out
    again: int | None = None  # the peak of the same program with an older PyTorch and cuDNN

    @property
    def is_of_texts(self) -> bool:
        return is_of_texts(self.model)

    @property
    def is_in_the_range(self) -> bool:
        return self.least <= self.recorded <= self.most

    @property
    def fits_too_little(self) -> bool:
        """Whether *fits* would be said of a card that has less than the recorded peak and the least context."""
        least, most = CONTEXTS[MODELS[self.gpu].capability]
        return self.most + most < self.recorded + least


def is_of_texts(model: str) -> bool:
    return "/" in model or model.lower().startswith("t5")


def measure(row: dict[str, str]) -> dict[str, str | int | float]:
    program = "texts.py" if is_of_texts(row["model"]) else "images.py"
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


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        names = [*KEY, *(f"{name}_bytes" for name in FIGURES), "answer"]
        writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def rows(choice: Choice = FIRST) -> list[Row]:
    counted = read(choice.counted)
    found = []
    for key, row in read(choice.recorded).items():
        if key in counted:
            ours = counted[key]
            estimates = {name: row[f"{name.lower()}_bytes"] for name in NAMES[1:]}
            others = {name: int(estimate) for name, estimate in estimates.items() if estimate}
            figures = [int(ours[f"{name}_bytes"]) for name in FIGURES]
            model, optimizer, batch, gpu = key
            recorded = int(row["recorded_bytes"])
            ran = row.get("out_of_memory") != "yes"
            again = int(row.get("again_bytes") or 0) or None
            found.append(
                Row(
                    *(model, optimizer, int(batch), gpu, recorded, others),
                    *(*figures, ours["answer"], ran, again),
                )
            )
    return found


def errors(chosen: Sequence[Row], name: str) -> str:
    """The median, the 90th percentile and the largest of the relative errors."""
    estimates = [row.others.get(name, row.counted) for row in chosen]
    found = sorted(abs(e / row.recorded - 1) for e, row in zip(estimates, chosen, strict=True))
    ninth = found[min(int(0.9 * len(found)), len(found) - 1)]
    return f"{statistics.median(found):.1%}, {ninth:.1%}, {found[-1]:.1%}"


def comparison(found: Sequence[Row]) -> Iterator[str]:
    groups = {
        "all": list(found),
        "with convolutions": [row for row in found if not row.is_of_texts],
        "transformers": [row for row in found if row.is_of_texts],
    }
    yield f"| error: median, 90 %, largest | {' | '.join(NAMES)} |"
    yield "| --- |" + " --- |" * len(NAMES)
    for words, chosen in groups.items():
        if chosen:
            cells = " | ".join(errors(chosen, name) for name in NAMES)
            yield f"| {len(chosen)} peaks, {words} | {cells} |"


def coverage(found: Sequence[Row]) -> str:
    inside = sum(row.is_in_the_range for row in found)
    width = statistics.median(row.width / row.recorded for row in found)
    fit = sum(row.answer == "fits" for row in found)
    wrong = sum(row.answer == "does not fit" for row in found)
    return (
        f"The range contains {inside} of the {len(found)} peaks, and is {width:.0%} of the peak wide at the "
        f"median, with the context. All programs ran on their GPU: the answer is *fits* for {fit}, *does not "
        f"fit* for {wrong}, and *cannot be told* for the others. Of cards that have a little less than the "
        f"recorded peak and CUDA's context, {sum(row.fits_too_little for row in found)} would be said to suffice."
    )


def table(found: Sequence[Row]) -> Iterator[str]:
    yield from comparison(found)
    yield ""
    yield coverage(found)
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


def tables_by_rule(found: Sequence[Row]) -> Iterator[str]:
    peaks = [row for row in found if row.ran]
    yield from comparison(peaks)
    yield ""
    yield coverage(peaks)
    yield ""
    beyond = [row for row in found if not row.ran]
    told = {
        answer: sum(row.answer == answer for row in beyond) for answer in ("does not fit", "fits")
    }
    yield (
        f"Of {len(beyond)} programs, memory ran out on their GPU: the answer is *does not fit* for "
        f"{told['does not fit']}, *fits* for {told['fits']}, and *cannot be told* for the others."
    )
    yield ""
    yield f"| model | peaks | from | to | in the range | {' | '.join(NAMES)} |"
    yield "| --- | --- | --- | --- | --- |" + " --- |" * len(NAMES)
    for model in sorted({row.model for row in peaks}, key=str.lower):
        chosen = [row for row in peaks if row.model == model]
        signed = sorted(row.counted / row.recorded - 1 for row in chosen)
        inside = sum(row.is_in_the_range for row in chosen)
        cells = " | ".join(errors(chosen, name).rpartition(",")[0] for name in NAMES)
        yield f"| {model} | {len(chosen)} | {signed[0]:+.1%} | {signed[-1]:+.1%} | {inside} | {cells} |"
    yield ""
    yield from recorded_twice([row for row in found if row.again])


def recorded_twice(found: Sequence[Row]) -> Iterator[str]:
    """What another cuDNN needs for the same programs."""
    changes = [row.again / row.recorded - 1 for row in found]
    yield (
        f"{len(found)} programs were recorded again on the same GPU with PyTorch 2.3.1 and cuDNN 8: the peaks are "
        f"{statistics.median(map(abs, changes)):.1%} apart at the median, from {min(changes):+.1%} to "
        f"{max(changes):+.1%}."
    )
    yield ""
    yield "| program | GPU | recorded, cuDNN 9 | cuDNN 8 | counted | to cuDNN 9 | to cuDNN 8 |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in sorted(found, key=lambda row: (row.model, row.batch)):
        yield (
            f"| {row.model}, {row.optimizer}, batch {row.batch} | {row.gpu} | {row.recorded / MIB:.0f} | "
            f"{row.again / MIB:.0f} | {row.counted / MIB:.0f} | {row.counted / row.recorded - 1:+.1%} | "
            f"{row.counted / row.again - 1:+.1%} |"
        )


def write_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for choice, lines in ((FIRST, table(rows())), (BY_RULE, tables_by_rule(rows(BY_RULE)))):
        before, _, rest = page.partition(choice.mark)
        after = rest.partition(choice.mark)[2]
        page = f"{before}{choice.mark}\n" + "\n".join(lines) + f"\n\n{choice.mark}{after}"
    PAGE.write_text(page, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("word", nargs="?", default="", help="a part of the model's name")
    parser.add_argument("--by-rule", action="store_true", help="the rows chosen by the rule")
    parser.add_argument("--page", action="store_true", help="run nothing")
    options = parser.parse_args()
    choice = BY_RULE if options.by_rule else FIRST
    recorded = read(choice.recorded)
    counted: dict[tuple[str, ...], dict[str, object]] = dict(read(choice.counted))
    for key, row in recorded.items():
        if options.word in row["model"] and not options.page:
            counted[key] = measure(row)
            print(*key, counted[key]["counted_bytes"], flush=True)
            write(choice.counted, [counted[key] for key in recorded if key in counted])
    write_page()


if __name__ == "__main__":
    main()
