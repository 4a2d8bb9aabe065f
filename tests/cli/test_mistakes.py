"""What was probably meant: commands, options and their values that are misspelt, and options that a script may have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import xdevice
from xdevice.tools.cli.near_misses import near_miss
from xdevice.tools.cli.options import commands

ONE = xdevice.available()[-1] if xdevice.available() else None
RUN = commands()[1]["run"]

_LINES = Path(__file__).with_name("script_options.txt").read_text(encoding="utf-8").splitlines()
PUBLISHED = [option for line in _LINES if line[0] != "#" for option in line.split()]


@pytest.mark.parametrize("option", PUBLISHED)
def test_a_scripts_own_option_goes_to_it(option):
    assert near_miss(option, RUN) is None


def test_the_table_has_a_hundred_options():
    assert len(set(PUBLISHED)) > 150


NEAR = {
    "--strict": "--stict --strcit --strct --stirct --strick --Strict --STRICT -strict –strict -–strict —strict --stric",
    "--virtual-gpus": "--virtual-gpu --virtual_gpus --virtual-gpsu --virtual-g --virtal-gpus --virtualgpus",
    "--backend": "--bakend --backned --back-end --backends --backen --Backend --backend_ -backend --bakend=torch",
    "--watch-transfers": "--watch-transfer --watch_transfers --wach-transfers --watch-tr --watch-tranfsers",
    "--stand-in": "--standin --stand_in --stand-int",
    "--tolerance": "--tolerence --tolerance_ --toler --tolerances=1e-3",
    "--normalize": "--normalise --normalized --normlize --normalize_",
    "--timeout": "--time-out --timeuot --timeouts",
    "--jobs": "--Jobs --JOBS -jobs",
    "--json": "--JSON --Json",
    "--lenient": "--lenent --leniant",
    "--races": "--Races --racess",
    "--gpu-model": "--gpu_model --gpu-modle",
    "--max-copies": "--max_copies --max-copes",
    "--stop-after": "--stop_after --stop-aftr",
    "--jobs 4": "--jobs4",
    "--virtual-gpus 2": "--virtual-gpus2 --virtual_gpus2",
    "--backend torch": "--backendtorch",
}  # fmt: skip


@pytest.mark.parametrize(
    ("meant", "typed"), [(meant, typed) for meant, words in NEAR.items() for typed in words.split()]
)
def test_a_misspelt_option_is_known(meant, typed):
    assert near_miss(typed, RUN) == meant


def test_each_option_is_its_own():
    long = [option for option in RUN.options if option[:2] == "--"]
    typed = [*long, *(f"{option}=1" for option in long)]
    assert len(long) > 15
    assert [near_miss(option, RUN) for option in typed] == [None] * len(typed)


@pytest.fixture
def run(tmp_path):
    """The command line in a folder with a script that leaves a mark if it runs."""
    (tmp_path / "script.py").write_text(
        "import sys; open('ran', 'w'); print(sys.argv[1:])", encoding="utf-8"
    )

    def run(*arguments):
        env = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
        done = subprocess.run(
            [sys.executable, "-m", "xdevice", *arguments],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done, (tmp_path / "ran").exists()

    return run


@pytest.mark.parametrize(("line", "says"), [
    ("rnu script.py", "no command 'rnu'; did you mean 'run'?"),
    ("inform", "no command 'inform'; did you mean 'info'?"),
    ("xyz", "no command 'xyz'; there are info, doctor, run, bench, virtual, launch; xdevice --help says"),
    ("script.py", "no command 'script.py'; type xdevice run script.py"),
    ("--backend torch run script.py", "--backend goes after a command; type xdevice run --backend"),
    ("--vresion", "unknown option '--vresion'; did you mean '--version'?"),
    ("info extra", "unexpected argument 'extra'; xdevice info --help"),
    ("info --timeout x", "'x' is not a number of seconds above 0; xdevice info --help"),
    ("doctor --jsno", "unknown option '--jsno'; did you mean '--json'?"),
    ("bench --scal 1", "unknown option '--scal'; did you mean '--scale'?"),
    ("bench tinny", "no experiment 'tinny'; there are"),
    ("bench --device gpuu:0", "'gpuu:0' names an unknown kind of device; did you mean 'gpu'?"),
    ("virtual biuld", "'biuld' is unknown; did you mean 'build'?"),
    ("launch --time-limt 5 script.py", "unknown option '--time-limt'; did you mean '--time-limit'?"),
    ("launch –n 2 script.py", "unknown option '–n'; xdevice launch --help"),
    ("run --stict script.py", "unknown option '--stict'; did you mean '--strict'?"),
    ("run –strict script.py", "unknown option '–strict'; did you mean '--strict'?"),
    ("run --format jsno --watch-transfers script.py", "'jsno' is unknown; did you mean 'json'?"),
    ("run script.py --stict", "did you mean '--strict'? to give it to the script, type -- --stict"),
    ("run --json script.py --virtual-gpu 2", "did you mean '--virtual-gpus'? to give it to the script, type -- --"),
    ("run -m script --virtual_gpus=2", "'--virtual-gpus'? to give it to the script, type -- --virtual_gpus=2"),
    ("run script.py --watch-transfer", "did you mean '--watch-transfers' before SCRIPT?"),
    ("run script.py --strict=1", "--strict takes no value; to give it to the script, type -- --strict=1"),
    ("run script.py --env CartPole-v1", "unknown; there is tox; the script's own --env goes after --"),
    ("run script.py --backend nccl", "no backend 'nccl'; there are"),
    ("run script.py --backend nccl ", "the script's own --backend goes after --"),
    ("run script.py --format json", "both before SCRIPT; the script's own --format goes after --"),
    ("run --strict --watch-transfers script.py", "--watch-transfers runs a script once, with its own output and exit"),
    ("run --fits script.py", "--fits has neither a size nor a model; write --fits 24GiB, or --fits --gpu-model"),
    ("run --fits 24GX script.py", "'24GX' is not a size in memory; write 24GiB"),
    ("run --fits --gpu-model t5 script.py", "no known model of a GPU, 't5'"),
    ("run script.py --fits 24GiB", "--fits goes before SCRIPT"),
    ("run --stop-after 2 script.py", "--stop-after goes with --fits, both before SCRIPT"),
    ("run --fits 24GiB --json script.py", "--fits runs a script once, with its own output and exit status; write"),
    ("run --fits 24GiB --format sarif script.py", "--fits has no report in sarif; there are text and json"),
    ("run --fits 24GiB --watch-transfers script.py", "--fits and --watch-transfers have a report each"),
    ("run --fits 24GiB --report none/x script.py", "there is no folder 'none'"),
    ("run --virtual-gpus 2 --stand-in --timeout 5 script.py", "--stand-in runs a script once"),
    ("run --backend torch,jax --watch-transfers script.py", "name one --backend"),
])  # fmt: skip
def test_a_mistake_is_one_line_that_says_what_to_type(run, line, says):
    done, ran = run(*line.split())
    assert (done.returncode, done.stdout, ran) == (2, "", False)
    assert done.stderr.startswith("xdevice: error: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


@pytest.mark.skipif(not ONE, reason="no framework is installed")
@pytest.mark.parametrize(
    "before", [[], ["--virtual-gpus", "2", "--stand-in"]], ids=["side by side", "once"]
)
def test_two_dashes_pass_a_misspelt_option_on(run, before):
    dashes = (
        [] if before else ["--"]
    )  # in a run of its own, all that follows SCRIPT is the script's
    done, ran = run(
        "run", *before, "--backend", ONE, "script.py", *dashes, "--stict", "--virtual-gpu", "2"
    )
    assert (done.returncode, ran) == (0, True), done.stderr
    assert "['--stict', '--virtual-gpu', '2']" in done.stdout


@pytest.mark.skipif(not ONE, reason="no framework is installed")
def test_options_after_a_launched_script_are_the_scripts(run):
    done, ran = run("launch", "script.py", "--log_dir", "runs", "--time-limt", "5")
    assert (done.returncode, ran) == (0, True), done.stderr
    assert done.stdout == "[0] ['--log_dir', 'runs', '--time-limt', '5']\n"
