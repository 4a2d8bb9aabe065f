"""``xdevice bench``, the real command, at a size where it takes no time to speak of."""

import json
import re

import pytest

import xdevice
from xdevice.tools.cli.bench import _add_event, progress_text
from xdevice.tools.experiments import EXPERIMENTS, Work, measured, setting, too_busy
from xdevice.tools.experiments.work import quartiles

# array-api-strict runs only by name
NAMES = [name for name in xdevice.available() if name != "array_api_strict"]
ONE = NAMES[-1]  # the lightest

SMALL = ("--scale", "0.001")


@pytest.fixture(scope="module")
def bench(python):
    def run(*arguments, **env):
        hidden = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
        return python("-m", "xdevice", "bench", *arguments, **hidden, **env)

    return run


@pytest.fixture(scope="module")
def results(bench, tmp_path_factory):
    def run(*arguments, **env):
        file = tmp_path_factory.mktemp("bench") / "times.json"
        done = bench(*arguments, *SMALL, "--json", file, **env)
        return done, json.loads(file.read_text(encoding="utf-8"))

    return run


def test_the_list_runs_no_experiment(bench):
    done = bench("--list", "--backend", ONE)
    assert done.returncode == 0
    assert done.stderr == ""
    for name in EXPERIMENTS:
        assert re.search(rf"^{name} ", done.stdout, re.MULTILINE)


@pytest.mark.weekly
def test_every_experiment_runs_everywhere(results):
    done, report = results("--backend", "all")
    assert done.returncode == 0, done.stdout
    assert [each["name"] for each in report["backends"]] == NAMES
    for each in report["backends"]:
        assert each["status"] == "ok"
        assert each["error"] is None
        assert each["version"]
        assert [experiment["name"] for experiment in each["experiments"]] == list(EXPERIMENTS)
        for experiment in each["experiments"]:
            if experiment["skipped"]:
                assert experiment["name"] == "parallel"
                assert "no second cpu" in experiment["skipped"]
                continue
            assert experiment["rows"][0]["devices"] == ["cpu:0"]
            assert experiment["rows"][0]["ratio_to_cpu"] == 1
            assert all(row["seconds"] > 0 and row["times"] >= 1 for row in experiment["rows"])


@pytest.fixture(scope="module")
def timed(results):
    """What is printed of the experiments that the tests read, and the report."""
    return results("tiny", "transfer", "copies", "large", "--backend", ONE)


def test_results_name_machine_and_versions(timed):
    _, report = timed
    assert report["xdevice"] == xdevice.__version__
    assert report["scale"] == 0.001
    assert report["python"]
    assert report["platform"]
    assert report["machine"]["host"]["threads"] >= 1
    (found,) = report["backends"]
    assert found["devices"][0]["device"] == "cpu:0"
    assert found["devices"][0]["virtual"] is False


def test_bytes_are_of_operands_and_results(timed):
    _, report = timed
    moved = {
        row["label"]: row["bytes_moved"] / row["times"]
        for experiment in report["backends"][0]["experiments"]
        for row in experiment["rows"]
    }
    assert moved["sent there and fetched each time"] == 3 * 200 * 200 * 4
    assert (
        moved["at once, to the device"]
        == moved["in 10 pieces, to the device"]
        == moved["in 10 pieces, back"]
        > 0
    )
    assert moved["10 × 10 on the CPU"] == moved["in NumPy, on the CPU"] == 0


def test_a_table_shows_time_ratio_and_bytes(timed):
    printed = timed[0].stdout
    for heading in ("times", "time each", "quartiles", "ratio to CPU", "bytes moved"):
        assert heading in printed
    row = r"sent there and fetched each time +10 +\S+ .?s +\S+ to \S+ .?s .* 4\.6 MiB"
    assert re.search(row, printed)


def test_virtual_gpus_are_called_virtual(results):
    done, report = results("tiny", "--backend", "array_api_strict", XDEVICE_VIRTUAL_GPUS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = report["backends"]
    assert [(d["device"], d["virtual"]) for d in found["devices"]] == [
        ("gpu:0", True),
        ("gpu:1", True),
    ]
    assert "virtual gpu:0" in done.stdout


@pytest.mark.weekly
@pytest.mark.parametrize(("suffix", "begins"), [(".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_the_plots_suffix_is_its_kind(tmp_path, bench, suffix, begins):
    file = tmp_path / f"times{suffix}"
    assert bench("tiny", "--backend", ONE, *SMALL, "--plot", file).returncode == 0
    assert file.read_bytes().startswith(begins)


@pytest.mark.weekly
def test_each_picture_has_units_and_a_legend(tmp_path, bench):
    done = bench(
        "tiny", "transfer", "--backend", ONE, *SMALL, "--plot", tmp_path / "times.svg", "--dark"
    )
    assert done.returncode == 0
    drawn = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    assert sorted(drawn) == ["times-tiny.svg", "times-transfer.svg"]
    assert all(name in done.stderr for name in drawn)
    for picture in drawn.values():
        assert picture.startswith("<?xml")
        assert "#1e1e1e" in picture
        words = [word.strip() for word in re.findall(r"<text[^>]*>([^<]*)</text>", picture)]
        assert re.search(r"time each in (s|ms|µs): median and quartiles", "\n".join(words))
        assert "speed-up over the first line" in words
        assert any(word.startswith(f"{ONE} ") for word in words)
        assert "1.00 ×" in words or "too busy" in done.stdout


def test_the_time_is_the_median_of_turns():
    done = []
    with xdevice.using(ONE):
        works = [
            Work(name, (xdevice.cpu(),), 10, lambda n, name=name: done.append((name, n)))
            for name in "ab"
        ]
        rows = measured(works)
    assert done == [
        ("a", 3),
        ("a", 2),
        ("b", 3),
        ("b", 2),
        *[("a", 2), ("b", 2)] * 4,
    ]  # warmed up first
    for row in rows:
        assert (row["times"], row["turns"]) == (10, 5)
        assert row["seconds_low"] <= row["seconds_each"] <= row["seconds_high"]
    assert quartiles([3.0]) == (3, 3, 3)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 100.0]) == (2, 3, 4)


def test_a_busy_machine_is_reported():
    steady = {"label": "a @ b", "seconds_low": 1.0, "seconds_high": 1.9}
    assert too_busy([steady]) is None
    said = too_busy([steady, {**steady, "seconds_high": 3.2}])
    assert "'a @ b' differ by a factor of 3.2" in said
    assert "too busy" in said
    experiments = {"tiny": {"rows": [{"ratio_to_cpu": 1.5}], "busy": None}}
    _add_event(experiments, {"experiment": "tiny", "busy": said})
    assert experiments["tiny"]["rows"] == [{"ratio_to_cpu": None}]


@pytest.mark.parametrize(("arguments", "says"), [
    (["lage"], "no experiment 'lage'; there are elementwise, large, tiny"),
    (["tiny", "--scale", "0"], "'0' is not a scale above 0 and up to 10"),
    (["tiny", "--scale", "nan"], "'nan' is not a scale"),
    (["tiny", "--plot", "times.doc"], "'times.doc' is not a picture"),
    (["tiny", "--plot", "nowhere/times.png"], "'nowhere/times.png' cannot be written: No such file"),
    (["tiny", "--json", "nowhere/times.json"], "'nowhere/times.json' cannot be written: No such file"),
    (["tiny", "--json", "x" * 300], "cannot be written"),
])  # fmt: skip
def test_a_mistake_is_one_line_and_status_2(command, arguments, says):
    done = command("bench", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("xdevice: error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_device_lists_those_there(bench):
    done = bench("tiny", "--backend", ONE, "--device", "gpu:3", *SMALL)
    assert done.returncode == 1
    assert f"gpu:3 does not exist under {ONE}, which sees cpu:0" in done.stdout


@pytest.mark.weekly
def test_a_crash_is_reported_and_others_go_on(with_toy, tmp_path):
    file = tmp_path / "times.json"
    done = with_toy(
        "segfaults",
        "bench",
        "tiny",
        "--backend",
        f"toy,{ONE}",
        *SMALL,
        "--json",
        str(file),
        status=1,
    )
    assert "killed by SIGSEGV" in done.stdout
    states = {
        each["name"]: each["status"]
        for each in json.loads(file.read_text(encoding="utf-8"))["backends"]
    }
    assert states == {"toy": "failed", ONE: "ok"}


@pytest.mark.weekly
def test_a_hang_ends_at_the_timeout(with_toy):
    done = with_toy("hangs", "bench", "tiny", "--backend", "toy", "--timeout", "2", status=1)
    assert "timed out" in done.stdout


def test_sizes_fit_the_free_memory():
    with xdevice.using(ONE):
        small = setting("cpu", 1.0)
    little = type(small)(small.device, None, 1.0, memory=4 * 16 * 100**2)
    assert little.fitting(10_000, 16, power=2) == 100
    assert little.fitting(50, 16, power=2) == 50
    assert type(small)(small.device, None, 1.0, memory=None).fitting(10_000, 16, power=2) == 10_000


def test_progress_names_what_runs():
    assert progress_text([], 9) == "0 of 9, importing the framework"
    assert (
        progress_text([{"about": {}}, {"experiment": "tiny", "title": "", "working": "10 × 10"}], 9)
        == "0 of 9, tiny: 10 × 10"
    )
