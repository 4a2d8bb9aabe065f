"""What was probably meant: commands, options, their values and files that are misspelt. And the help, of one screen."""

import pytest

import xdevice
from xdevice.tools.cli import COMMANDS

ONE = xdevice.available()[-1] if xdevice.available() else None


@pytest.fixture
def folder(tmp_path):
    """A folder with a script that leaves a mark if it runs."""
    (tmp_path / "script.py").write_text(
        "import sys; open('ran', 'w'); print(sys.argv[1:])", encoding="utf-8"
    )
    (tmp_path / "chapter.md").write_text("text", encoding="utf-8")
    (tmp_path / "lesson.ipynb").write_text("{}", encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder, python):
    def run(*arguments):
        done = python("-m", "xdevice", *arguments, cwd=folder)
        return done, (folder / "ran").exists()

    return run


@pytest.mark.parametrize(("line", "says"), [
    ("rnu script.py", "no command 'rnu'; did you mean 'run'?"),
    ("inform", "no command 'inform'; did you mean 'info'?"),
    ("xyz", "no command 'xyz'; there are info, doctor, run, emulate, watch, fits, chapter, bench, launch, virtual;"),
    ("script.py", "no command 'script.py'; type xdevice run script.py"),
    ("chapter.md", "no command 'chapter.md'; type xdevice chapter chapter.md"),
    ("--backend torch run script.py", "unknown option '--backend'; xdevice --help"),
    ("--vresion", "unknown option '--vresion'; did you mean '--version'?"),
    ("info extra", "unexpected argument 'extra'; xdevice info --help"),
    ("info --timeout x", "'x' is not a number of seconds above 0; xdevice info --help"),
    ("doctor --jsno", "unknown option '--jsno'; did you mean '--json'?"),
    ("bench --scal 1", "unknown option '--scal'; did you mean '--scale'?"),
    ("bench tinny", "no experiment 'tinny'; there are"),
    ("bench --device gpuu:0", "'gpuu:0' names an unknown kind of device; did you mean 'gpu'?"),
    ("virtual biuld", "'biuld' is unknown; did you mean 'build'?"),
    ("virtual", "required: build|install|uninstall|status; xdevice virtual --help"),
    ("virtual status --backend nccl", "no backend 'nccl'; there are"),
    ("virtual uninstall --backend torch", "--backend goes with xdevice virtual build or status"),
    ("launch --time-limt 5 script.py", "unknown option '--time-limt'; did you mean '--time-limit'?"),
    ("launch –n 2 script.py", "unknown option '–n'; xdevice launch --help"),
    ("run --stict script.py", "unknown option '--stict'; did you mean '--strict'?"),
    ("run –strict script.py", "unknown option '–strict'; did you mean '--strict'?"),
    ("run --stict=1 script.py", "unknown option '--stict'; did you mean '--strict'?"),
    ("run --strict=1 script.py", "ignored explicit argument '1'"),
    ("run --backend nccl script.py", "no backend 'nccl'; there are"),
    ("run --env CartPole-v1 script.py", "'CartPole-v1' is unknown; there is tox"),
    ("run --virtual-gpus 65 script.py", "--virtual-gpus 65 is out of range; give an integer from 1 to 64"),
    ("run chapter.md", "'chapter.md' is a chapter, not a script; type xdevice chapter chapter.md"),
    ("run scrpt.py", "'scrpt.py' does not exist; did you mean 'script.py'?"),
    ("chapter chaptr.md", "'chaptr.md' does not exist; did you mean 'chapter.md'?"),
    ("chapter script.py", "'script.py' is not a chapter in Markdown (.md) or a notebook (.ipynb); type xdevice run"),
    ("chapter --model t4 chapter.md", "--model says what the GPUs of --gpus are; write --gpus 2 --model t4"),
    ("chapter --review chapter.md", "--review adds to the page of --html; write --html FILE --review"),
    ("chapter --record --check chapter.md", "--record writes what --check compares with; leave one out"),
    ("emulate --gpu 2 script.py", "unknown option '--gpu'; did you mean '--gpus'?"),
    ("emulate --model t5 script.py", "'t5' is unknown; did you mean 't4'?"),
    ("emulate", "the following arguments are required: PROGRAM; xdevice emulate --help shows what to type"),
    ("watch --format jsno script.py", "'jsno' is unknown; did you mean 'json'?"),
    ("watch --baselin x script.py", "unknown option '--baselin'; did you mean '--baseline'?"),
    ("watch --report none/x script.py", "'none/x' cannot be written: No such file or directory"),
    ("fits script.py", "'script.py' is not the memory or the model of a GPU; write 24GiB, or one of h200"),
    ("fits 24 script.py", "'24' is a size without a unit; write 24GiB"),
    ("fits 24GX script.py", "'24GX' is not the memory or the model of a GPU; write 24GiB"),
    ("fits rtx490 script.py", "'rtx490' is not the memory or the model of a GPU; did you mean 'rtx4090'?"),
    ("fits 24GiB --stop-aftr 2 script.py", "unknown option '--stop-aftr'; did you mean '--stop-after'?"),
    ("fits --format github 24GiB script.py", "'github' is unknown; there are text, json"),
    ("fits 24GiB", "the following arguments are required: PROGRAM"),
])  # fmt: skip
def test_a_mistake_is_one_line_that_says_what_to_type(command, folder, line, says):
    done = command(*line.split())
    assert (done.returncode, done.stdout, (folder / "ran").exists()) == (2, "", False)
    assert done.stderr.startswith("xdevice: error: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


@pytest.mark.parametrize(("line", "says"), [
    ("emulate --backend numpy script.py", "numpy has no virtual GPUs: its arrays are always on the CPU; choose"),
    ("watch --gpus 1 --backend numpy script.py", "numpy has no virtual GPUs: its arrays are always on the CPU"),
    ("run --virtual-gpus 2 --backend numpy script.py", "numpy has no virtual GPUs; leave it out of --backend"),
    ("emulate lesson.ipynb", "'lesson.ipynb' is a chapter, not a script; type xdevice chapter lesson.ipynb"),
])  # fmt: skip
def test_a_mistake_that_is_seen_once_virtual_gpus_are_asked_for_is_one_line(run, line, says):
    done, ran = run(*line.split())
    assert (done.returncode, done.stdout, ran) == (2, "", False)
    assert done.stderr.startswith("xdevice: error: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_fits_on_a_screen_and_has_an_example(name, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = command(name, "--help").stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    example = lines[lines.index("example:") + 1]
    assert example.startswith(f"  xdevice {name} ")


@pytest.mark.skipif(not ONE, reason="no framework is installed")
def test_options_after_a_launched_script_are_the_scripts(run):
    done, ran = run("launch", "script.py", "--log_dir", "runs", "--time-limt", "5")
    assert (done.returncode, ran) == (0, True), done.stderr
    assert done.stdout == "[0] ['--log_dir', 'runs', '--time-limt', '5']\n"
